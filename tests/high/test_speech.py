"""Real speech through a real model, from a file to written text."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests import data
from whispyx import Aborted, AudioError, LanguageError, Model, ParamsError, Segment, Transcript
from whispyx.cli import main
from whispyx.models import SAMPLES

ROOT = str(Path(__file__).resolve().parents[2])
RATE = 16000
SPOKEN = re.findall(r"[a-z']+", SAMPLES["jfk"].text.lower())


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def check_times(transcript: Transcript) -> None:
    """0 <= start <= end <= duration, and starts never go back, for segments and for tokens with times."""
    latest = 0.0
    for segment in transcript:
        assert latest <= segment.start <= segment.end <= transcript.duration
        latest = segment.start
        for token in segment.tokens:
            if token.start is not None and token.end is not None:
                assert 0.0 <= token.start <= token.end <= transcript.duration


@pytest.fixture(scope="module")
def jfk() -> Path:
    return data.or_skip(data.jfk_wav)


@pytest.fixture(scope="module")
def samples(jfk: Path) -> Any:
    found, rate = soundfile.read(jfk, dtype="float32")
    assert rate == RATE
    return found


@pytest.fixture(scope="module")
def tiny_file() -> Path:
    return data.or_skip(data.model_file, "tiny.en")


@pytest.fixture(scope="module")
def tiny(tiny_file: Path) -> Iterator[Model]:
    with Model(tiny_file) as model:
        yield model


@pytest.fixture(scope="module")
def base() -> Iterator[Model]:
    with Model(data.or_skip(data.model_file, "base")) as model:
        yield model


@pytest.fixture(scope="module")
def expected(tiny: Model, jfk: Path) -> Transcript:
    return tiny.transcribe(jfk)


def test_the_words_of_a_known_recording_are_recognised(expected: Transcript) -> None:
    assert words(expected.text) == SPOKEN
    assert expected.language == "en" and expected.duration == 11.0
    assert expected.devices[-1].startswith("CPU")
    check_times(expected)
    assert expected.timings.n_encode >= 1 and expected.timings.n_decode > 0


def test_tokens_join_to_the_text_of_their_segment(expected: Transcript) -> None:
    for segment in expected:
        assert "".join(token.text for token in segment.tokens if not token.special) == segment.text
        assert all(0.0 <= token.probability <= 1.0 for token in segment.tokens)
        assert segment.avg_logprob is not None and segment.avg_logprob <= 0.0


def test_a_multilingual_model_detects_the_language(base: Model, jfk: Path) -> None:
    transcript = base.transcribe(jfk)
    assert words(transcript.text) == SPOKEN
    assert transcript.language == "en" and (transcript.language_probability or 0) > 0.9
    found = base.detect_language(jfk)
    assert found.language == "en" and len(found.probabilities) == 99
    assert math.isclose(sum(found.probabilities.values()), 1.0, rel_tol=1e-3)
    assert math.isclose(found.probability, transcript.language_probability or 0, rel_tol=1e-3)


def test_every_way_of_giving_the_samples_gives_the_same_text(
    tiny: Model, jfk: Path, samples: Any, expected: Transcript
) -> None:
    integers = np.round(samples * 32768.0).astype(np.int16)
    assert np.array_equal(integers / np.float32(32768.0), samples)
    frozen = samples[::-1].copy()[::-1]
    frozen.flags.writeable = False
    ways = {
        "bytes": jfk.read_bytes(),
        "file object": io.BytesIO(jfk.read_bytes()),
        "int16": integers,
        "two channels of float64": np.stack([samples, samples], axis=1).astype(np.float64),
        "read only and strided": frozen,
    }
    for name, way in ways.items():
        assert tiny.transcribe(way).segments == expected.segments, name


def test_other_rates_and_channels_give_the_same_words(tiny: Model, jfk: Path, samples: Any, tmp_path: Path) -> None:
    import soxr

    for rate, channels, kind in ((44100, 2, "PCM_16"), (48000, 1, "PCM_24"), (16000, 1, "FLOAT")):
        path = tmp_path / f"{rate}.wav"
        sound = np.repeat(soxr.resample(samples, RATE, rate)[:, None], channels, axis=1)
        soundfile.write(path, sound, rate, subtype=kind)
        assert words(tiny.transcribe(path).text) == SPOKEN


def test_samples_that_are_no_numbers_are_refused_with_their_place(tiny: Model, samples: Any) -> None:
    for value in (np.nan, np.inf, -np.inf):
        bad = samples.copy()
        bad[4321] = value
        with pytest.raises(ValueError, match="4321") as caught:
            tiny.transcribe(bad)
        assert isinstance(caught.value, AudioError)


def test_after_every_error_the_model_works_as_before(tiny: Model, samples: Any, expected: Transcript) -> None:
    for wrong in ({"language": "de"}, {"task": "translate"}, {"audio_ctx": 0}):
        with pytest.raises(ValueError, match=r"English only|audio_ctx"):
            tiny.transcribe(samples, **wrong)
    with pytest.raises(LanguageError):
        tiny.detect_language(samples)
    with pytest.raises(ZeroDivisionError):
        tiny.transcribe(samples, progress=lambda percent: 1 // 0)
    with pytest.raises(AudioError):
        tiny.transcribe(b"this is no sound")
    assert tiny.transcribe(samples).segments == expected.segments


def test_one_call_leaves_no_trace_in_the_next(base: Model, samples: Any) -> None:
    alone = base.transcribe(samples)
    base.transcribe(samples[: 5 * RATE], "de", initial_prompt="Kartoffeln und Rüben.", temperature=0.8)
    assert base.transcribe(samples).segments == alone.segments


def test_the_same_seed_gives_the_same_sampled_text(base: Model, samples: Any) -> None:
    first = base.transcribe(samples, "en", temperature=0.8, best_of=3)
    base.transcribe(samples, "en")
    assert base.transcribe(samples, "en", temperature=0.8, best_of=3).segments == first.segments


def test_beams_find_the_words_and_a_pattern_keeps_some_away(base: Model, samples: Any) -> None:
    beams = base.transcribe(samples, "en", beam_size=5, temperature_inc=0, suppress_regex="[Cc]ountry")
    words = beams.text.lower()
    assert "fellow americans" in words and "country" not in words
    assert base.transcribe(samples, "en", beam_size=2, patience=2.0, temperature_inc=0).text


def test_a_bad_pattern_is_refused_before_anything_is_recognised(base: Model, samples: Any) -> None:
    with pytest.raises(ParamsError, match="suppress_regex"):
        base.transcribe(samples, "en", suppress_regex="[")


def test_threads_that_share_a_model_get_what_they_would_get_alone(tiny: Model, samples: Any) -> None:
    pieces = [samples, samples[: 5 * RATE], samples[3 * RATE :]]
    alone = [tiny.transcribe(piece).segments for piece in pieces]
    together: dict[int, Any] = {}

    def job(number: int) -> None:
        together[number] = tiny.transcribe(pieces[number]).segments

    threads = [threading.Thread(target=job, args=(number,)) for number in range(len(pieces))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert [together[number] for number in range(len(pieces))] == alone


def test_segments_are_shown_as_they_are_found_and_progress_ends_at_100(tiny: Model, samples: Any) -> None:
    long = np.concatenate([samples] * 4)
    shown: list[Segment] = []
    told: list[int] = []
    transcript = tiny.transcribe(long, on_segment=shown.append, progress=told.append)
    assert tuple(shown) == transcript.segments and len(shown) > 2
    assert told == sorted(told) and told[-1] == 100 and 0 <= told[0] <= 100
    assert words(transcript.text).count("country") >= 6  # twice in each of four
    check_times(transcript)


def test_a_job_is_stopped_by_its_caller_and_keeps_what_it_has(tiny: Model, samples: Any, expected: Transcript) -> None:
    shown: list[Segment] = []
    with pytest.raises(Aborted) as caught:
        tiny.transcribe(np.concatenate([samples] * 12), on_segment=shown.append, abort=lambda: bool(shown))
    assert caught.value.partial.segments == tuple(shown) and not caught.value.partial.complete
    assert tiny.transcribe(samples).segments == expected.segments


def test_a_callback_may_use_the_same_model(tiny: Model, samples: Any, expected: Transcript) -> None:
    inner: list[Transcript] = []

    def again(segment: Segment) -> None:
        if not inner:
            inner.append(expected)
            inner[0] = tiny.transcribe(samples)

    assert tiny.transcribe(samples, on_segment=again).segments == expected.segments
    assert inner[0].segments == expected.segments


LENGTHS = (
    0, 1, 2, 79, 80, 100, 159, 160, 161, 199, 200, 201, 399, 400, 401, 1599, 1600, 1601, 8000, 15839, 15840, 16000,
)  # fmt: skip
LENGTHS_SCRIPT = """
import json, sys, soundfile, whispyx
samples, _ = soundfile.read(sys.argv[2], dtype="float32")
with whispyx.Model(sys.argv[1]) as model:
    for length in json.loads(sys.argv[3]):
        t = model.transcribe(samples[8000:8000 + length])
        print(json.dumps([length, t.duration, [[s.start, s.end, s.text] for s in t]]))
"""


def test_recordings_of_a_few_samples_end_well(tiny_file: Path, jfk: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LENGTHS_SCRIPT, str(tiny_file), str(jfk), json.dumps(LENGTHS)],
        capture_output=True, text=True, timeout=600, cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert [row[0] for row in rows] == list(LENGTHS)
    for length, duration, segments in rows:
        assert duration == length / RATE
        assert all(0 <= start <= end <= duration and "\ufffd" not in text for start, end, text in segments)
        if length == 0:
            assert segments == []


def test_a_part_of_the_audio_has_its_own_words_and_times(tiny: Model, samples: Any) -> None:
    transcript = tiny.transcribe(samples, offset=8.0, duration=100.0)
    assert "country" in words(transcript.text) and "fellow" not in words(transcript.text)
    assert transcript.segments[0].start >= 8.0
    check_times(transcript)
    assert tiny.transcribe(samples, offset=20.0).segments == ()


def test_without_timestamps_no_segment_goes_beyond_the_audio(tiny: Model, samples: Any) -> None:
    transcript = tiny.transcribe(samples, timestamps=False)
    assert words(transcript.text) == SPOKEN
    check_times(transcript)


# ---- the command


def run_command(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "whispyx", *arguments], capture_output=True, timeout=600, cwd=ROOT, **settings
    )


def test_a_file_becomes_text_subtitles_and_json(tiny_file: Path, jfk: Path, tmp_path: Path) -> None:
    run = run_command("transcribe", str(jfk), "-m", str(tiny_file), "-o", str(tmp_path), "-f", "txt,srt,vtt,json")
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")
    assert words((tmp_path / "jfk.txt").read_text("utf-8")) == SPOKEN
    found = json.loads((tmp_path / "jfk.json").read_text("utf-8"))
    assert words(found["text"]) == SPOKEN and found["duration"] == 11.0 and found["complete"]
    assert " --> " in (tmp_path / "jfk.srt").read_text("utf-8")
    assert (tmp_path / "jfk.vtt").read_text("utf-8").startswith("WEBVTT\n")


def test_standard_input_to_standard_output(tiny_file: Path, jfk: Path) -> None:
    run = run_command("transcribe", "-", "-m", str(tiny_file), input=jfk.read_bytes())
    assert (run.returncode, run.stderr) == (0, b"") and words(run.stdout.decode()) == SPOKEN


def test_paths_in_any_letters_and_no_letters_work_in_a_plain_locale(tiny_file: Path, jfk: Path, tmp_path: Path) -> None:
    folder = tmp_path / "тест ü 日本"
    folder.mkdir()
    model = folder / "модель.bin"
    model.symlink_to(tiny_file)
    sounds = [folder / "привет мир.wav", folder / os.fsdecode(b"\xff.wav")]
    for sound in sounds:
        shutil.copy(jfk, sound)
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}
    run = run_command("transcribe", *map(str, sounds), "-m", str(model), "-o", str(folder / "ß"), env=environment)
    assert run.returncode == 0, run.stderr
    written = {path.name: path.read_text("utf-8") for path in (folder / "ß").iterdir()}
    assert set(written) == {"привет мир.txt", os.fsdecode(b"\xff.txt")}
    assert all(words(text) == SPOKEN for text in written.values())
    run = run_command("transcribe", *map(str, sounds), "-m", str(model), env=environment)
    assert run.returncode == 0 and b"Traceback" not in run.stderr


def test_ctrl_c_stops_the_command_and_keeps_what_was_recognised(tiny_file: Path, samples: Any, tmp_path: Path) -> None:
    sound = tmp_path / "long.wav"
    soundfile.write(sound, np.concatenate([samples] * 60), RATE)
    process = subprocess.Popen(
        [sys.executable, "-m", "whispyx", "transcribe", str(sound), "-m", str(tiny_file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        # Whoever runs the tests in the background may have switched Ctrl-C off, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "fellow" in words((first + rest).decode())
    assert b"was recognised up to" in err and b"Traceback" not in err
    assert words((first + rest).decode()).count("fellow") < 60


def test_the_shipped_sentence_is_understood(tiny: Model) -> None:
    from whispyx.models import sample

    spoken = words(SAMPLES["synthetic"].text)
    assert len(set(words(tiny.transcribe(sample("synthetic")).text)) & set(spoken)) >= len(spoken) // 2


def test_a_model_comes_from_its_content_or_an_open_file_too(tiny_file: Path) -> None:
    with Model(tiny_file.read_bytes()) as model, tiny_file.open("rb") as file, Model(file) as other:
        assert model.name == "<bytes>" and model.info.path is None
        assert model.info.n_vocab == other.info.n_vocab == 51864


def test_info_of_a_real_model(tiny_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tiny_file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # facts: the published sizes of tiny.en
    assert (found["type"], found["multilingual"], found["n_vocab"], found["n_mels"]) == ("tiny", False, 51864, 80)
    assert (found["n_audio_layer"], found["n_text_layer"], found["n_audio_state"]) == (4, 4, 384)
    assert main(["info", str(Path(__file__))]) == 3
    err = capsys.readouterr().err
    assert err.startswith("whispyx: ") and err.count("\n") == 1
