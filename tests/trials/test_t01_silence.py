"""T01: silence, noise and hum give no text, or text that is marked as no speech. (whisper.cpp #1881, #1724, #1592)"""

from __future__ import annotations

import io
from typing import Any

from tests import data
from tests.trials import child
from tests.trials.bench import bench, files, hear
from tests.trials.checks import check_transcript
from whispyx import Model
from whispyx.writers import write

QUIET = ("sil1_2", "sil10", "sil30", "sil65", "white10", "pink7", "hum20")
NO_SPEECH_THOLD = 0.6  # the default of whisper_full_params
BEAM = {"strategy": "beam_search", "beam_size": 5}

Row = list[Any]


def listen(model: str, jobs: list[tuple[str, dict[str, Any]]]) -> list[Row]:
    """Clip, parameters, and text and no-speech probability of each segment."""
    rows = []
    with bench(model) as b:
        for clip, params in jobs:
            found = b.run(clip, **params).segments
            rows.append([clip, params, [[s.text.decode(), s.no_speech_prob] for s in found]])
    return rows


def check(rows: list[Row]) -> None:
    assert rows
    for clip, params, segments in rows:
        for text, no_speech_prob in segments:
            assert no_speech_prob > NO_SPEECH_THOLD, f"{clip}, {params}: {text!r} is not marked as no speech"


def test_silence_gives_no_text_that_is_not_marked() -> None:
    files("tiny.en")
    jobs: list[tuple[str, dict[str, Any]]] = [(clip, {}) for clip in QUIET]
    jobs += [("sil10", {"no_timestamps": True}), ("pink7", {"no_timestamps": True})]
    jobs += [("sil10", BEAM), ("hum20", BEAM)]
    check(child.run(listen, "tiny.en", jobs))


def test_silence_in_any_language_gives_no_text_that_is_not_marked() -> None:
    files("base")
    jobs: list[tuple[str, dict[str, Any]]] = [("sil1_2", {"language": None}), ("pink7", {"language": None})]
    jobs += [("hum20", {"language": "ru"}), ("white10", {"language": "es"}), ("sil10", {"language": "de", **BEAM})]
    check(child.run(listen, "base", jobs))


@child.slow
def test_silence_under_every_setting() -> None:
    files("tiny.en", "base")
    jobs: list[tuple[str, dict[str, Any]]] = [
        (clip, {"no_timestamps": no_timestamps, **strategy})
        for clip in QUIET
        for no_timestamps in (False, True)
        for strategy in ({}, BEAM)
    ]
    check(child.run(listen, "tiny.en", jobs))
    jobs = [
        (clip, {"language": language, "no_timestamps": no_timestamps})
        for language in (None, "en", "ru", "es", "de")
        for clip in ("sil10", "pink7", "hum20")
        for no_timestamps in (False, True)
    ]
    jobs += [(clip, {"language": None, **BEAM}) for clip in ("sil1_2", "white10", "pink7")]
    check(child.run(listen, "base", jobs))


def test_voice_activity_detection_finds_nothing_in_silence() -> None:
    files("tiny.en")
    vad = {"vad": True, "vad_model_path": str(data.or_skip(data.silero_ggml))}
    rows = child.run(listen, "tiny.en", [(clip, vad) for clip in QUIET])
    assert [[clip, segments] for clip, _, segments in rows] == [[clip, []] for clip in QUIET]


def written() -> list[Row]:
    """What the friendly API keeps and writes: clip, texts in all, the transcript's text, txt, srt."""
    rows = []
    with Model(str(child.model("tiny.en"))) as model:
        for clip in (*QUIET, "speech_then_sil30", "noisy"):
            transcript = model.transcribe(hear(clip)[: 60 * 16000])
            check_transcript(transcript)
            files = []
            for name in ("txt", "srt"):
                stream = io.StringIO()
                write(transcript, stream, name)
                files.append(stream.getvalue())
            rows.append([clip, [s.text for s in transcript], transcript.text, *files])
    return rows


def test_marked_text_is_not_written_and_speech_is() -> None:
    files("tiny.en")
    rows = {clip: rest for clip, *rest in child.run(written)}
    for clip in QUIET:
        assert rows[clip][1:] == ["", "", ""], clip
    assert any(rows[clip][0] for clip in QUIET)  # the JSON keeps it, marked
    texts, text, txt, srt = rows["speech_then_sil30"]
    assert "test" in text and "BLANK" not in text + txt + srt
    texts, text, txt, srt = rows["noisy"]
    assert text == "".join(texts).strip() and text  # in loud noise nothing is lost
