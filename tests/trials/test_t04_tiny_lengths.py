"""T04: recordings of hardly any samples, and damaged files. (whisper.cpp #1644, #3956, #2065; whisper-rs#106)"""

from __future__ import annotations

import logging
import warnings
from typing import Any

from tests.trials import child, sounds
from tests.trials.bench import bench, files
from tests.trials.checks import check_transcript
from whispyx import AudioError, Model

LENGTHS = (
    0, 1, 2, 79, 80, 100, 159, 160, 161, 199, 200, 201, 399, 400, 401, 1599, 1600, 1601, 8000, 15839, 15840, 16000,
)  # fmt: skip
FEWEST = 1640  # samples that give ten frames: the first and the last 200 samples count for half a frame each
DAMAGED = ("empty", "header_only", "cut")


class Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def slices() -> list[Any]:
    heard = Collector()
    logging.getLogger("whispyx").addHandler(heard)
    rows = []
    with bench("tiny.en") as b:
        for length in LENGTHS:
            heard.lines.clear()
            result = b.run(b.hello[8000 : 8000 + length].copy(), token_timestamps=True, temperature_inc=0.0)
            rows.append([length, result.timings.n_encode, len(result.segments), list(heard.lines)])
    return rows


def test_short_slices_end_well_or_say_why_nothing_is_recognised() -> None:
    files("tiny.en")
    rows = child.run(slices)
    assert [row[0] for row in rows] == list(LENGTHS)
    for length, n_encode, n_segments, lines in rows:
        if length == 0:
            assert (n_encode, n_segments) == (0, 0)
        elif n_encode == 0:
            assert length < FEWEST and n_segments == 0
            assert any("at least" in line for line in lines), f"{length} samples: nothing says why there is no text"
        else:
            assert n_encode == 1 and length >= FEWEST


def damaged() -> dict[str, Any]:
    found: dict[str, Any] = {}
    heard = Collector()
    logging.getLogger("whispyx").addHandler(heard)
    with Model(str(child.model("tiny.en"))) as model, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        whole = model.transcribe(sounds.wav("hello"))
        for name in DAMAGED:
            heard.lines.clear()
            warned.clear()
            try:
                transcript = model.transcribe(sounds.wav(name))
            except AudioError as error:
                found[name] = str(error)
            else:
                check_transcript(transcript)
                found[name] = [transcript.duration, len(warned) + len(heard.lines)]
            assert model.transcribe(sounds.wav("hello")).segments == whole.segments
        found["hello"] = whole.duration
    return found


def test_a_damaged_file_is_an_error_or_gives_the_samples_that_are_there() -> None:
    files("tiny.en")
    found = child.run(damaged)
    for name in DAMAGED:
        if isinstance(found[name], str):
            assert found[name]
        elif name == "cut":
            duration, n_warnings = found[name]
            assert 0.4 * found["hello"] < duration <= 0.5 * found["hello"] and n_warnings > 0
        else:
            assert found[name][0] == 0.0
