"""T15: a character is never cut, however short the segments. (whisper.cpp #1798, #438, #3760, PR #3592)"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.trials import child
from tests.trials.bench import bench, files
from tests.trials.checks import transcript_of
from tests.writers.readers import read_srt, read_vtt
from whispyx.writers import formats, save

LANGUAGES = {"chinese": "zh", "japanese": "ja", "russian": "ru", "latvian": "lv"}
PIECES = ((1, False), (2, True), (5, False), (10, True))  # max_len, split_on_word
FEW = [("russian", "ru"), ("japanese", "ja"), ("latvian", "en")]
ALL = [(clip, language) for clip, right in LANGUAGES.items() for language in (right, "en")]
Job = tuple[str, str, dict[str, Any]]


def read_files(segments: Any, n_samples: int, eot: int) -> dict[str, str]:
    """Every format's file of a result, read as UTF-8 by strict readers."""
    transcript = transcript_of(segments, n_samples, eot)
    texts = {"": "".join(s.text for s in transcript)}
    with tempfile.TemporaryDirectory() as folder:
        for name in formats():
            path = Path(folder) / f"result.{name}"
            save(transcript, path)
            texts[name] = path.read_bytes().decode("utf-8")
    read_srt(texts["srt"])
    read_vtt(texts["vtt"])
    json.loads(texts["json"])
    return texts


def decode(jobs: list[Job]) -> list[Any]:
    rows = []
    with bench("base") as b:
        for clip, language, params in jobs:
            told: list[Any] = []
            result = b.run(clip, language=language, temperature_inc=0.0, new_segment_callback=told.extend, **params)
            raw = b"".join(t.text for s in result.segments for t in s.tokens if t.id < b.eot)
            rows.append(
                {
                    "job": [clip, language, params],
                    "texts": [s.text.decode() for s in result.segments],
                    "told": [s.text.decode() for s in told],
                    "raw": raw.decode("utf-8", "backslashreplace"),
                    "pieces": len(result.segments),
                    "files": read_files(result.segments, result.n_samples, b.eot),
                }
            )
    return rows


def jobs_of(clips: list[tuple[str, str]], pieces: tuple[tuple[int, bool], ...]) -> list[Job]:
    jobs: list[Job] = []
    for clip, language in clips:
        jobs.append((clip, language, {"token_timestamps": True}))
        jobs += [
            (clip, language, {"token_timestamps": True, "max_len": n, "split_on_word": by_word})
            for n, by_word in pieces
        ]
    return jobs


def check(rows: list[Any]) -> None:
    whole: dict[tuple[str, str], str] = {}
    for row in rows:
        clip, language, params = row["job"]
        joined = "".join(row["texts"])
        assert row["told"] == row["texts"], row["job"]
        assert joined == whole.setdefault((clip, language), joined), row["job"]
        assert row["raw"] == joined, row["job"]  # the tokens keep their bytes
        for name, text in row["files"].items():
            assert "\ufffd" not in text, (row["job"], name)
        if joined and params.get("max_len") == 1:
            assert row["pieces"] > 1, row["job"]
    assert sum(map(bool, whole.values())) > len(whole) / 2


def test_segments_of_one_character_join_to_the_same_text() -> None:
    files("base")
    check(child.run(decode, jobs_of(FEW, ((1, False), (5, True)))))


@child.slow
def test_segments_of_any_length_join_to_the_same_text_in_every_language() -> None:
    files("base")
    check(child.run(decode, jobs_of(ALL, PIECES)))


def odd(seeds: list[int]) -> None:
    """At temperature 1 the model writes odd tokens: the checks are in `Bench.run` and in the strict readers."""
    with bench("base") as b:
        for seed in seeds:
            for max_len in (0, 1):
                result = b.run(
                    "chinese", language="zh", temperature=1.0, best_of=1, seed=seed, token_timestamps=True,
                    max_len=max_len, max_tokens=60,
                )  # fmt: skip
                for text in read_files(result.segments, result.n_samples, b.eot).values():
                    assert "\ufffd" not in text


def test_odd_tokens_give_whole_characters_too() -> None:
    files("base")
    child.run(odd, [1, 2, 3])
