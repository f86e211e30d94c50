"""T17: as many beams as the engine has, no more, and every parameter of them counts. (whisper.cpp #2334, #3723)"""

from __future__ import annotations

from typing import Any

from tests.trials import child
from tests.trials.bench import bench, files, hear, text_of
from tests.trials.checks import RATE
from whispyx.errors import ParamsError

PASSAGE_S = 35  # two windows
LONG_S = 200


def beams(sound: str, seconds: int, jobs: list[dict[str, Any]]) -> list[Any]:
    samples = hear(sound)[: seconds * RATE]
    rows = []
    with bench("tiny.en") as b:
        for params in jobs:
            result = b.run(samples, **params)
            rows.append([text_of(result), [s.avg_logprob for s in result.segments], len(result.segments)])
    return rows


def beam(size: int, **more: Any) -> dict[str, Any]:
    return {"strategy": "beam_search", "beam_size": size, **more}


def test_one_to_eight_beams_complete() -> None:
    files("tiny.en")
    for text, _, n_segments in child.run(beams, "passage", PASSAGE_S, [beam(2), beam(8)]):
        assert "apple" in text and "forest" in text and n_segments >= 5
    for text, _, n_segments in child.run(beams, "hello", PASSAGE_S, [beam(1), beam(5)]):
        assert "good morning" in text.lower() and n_segments >= 1


@child.slow
def test_eight_beams_get_through_a_long_recording() -> None:
    files("tiny.en")
    rows = child.run(beams, "long", LONG_S, [beam(8)], timeout=1800)
    for text, _, n_segments in rows:
        assert n_segments >= 20 and text.count("apple") >= 2


def refusals() -> list[Any]:
    found = []
    with bench("tiny.en") as b:
        for params in (beam(9), beam(100), beam(0), beam(-1), {"best_of": 9}, {"best_of": 0}):
            error = b.refused(ParamsError, "hello", **params)
            found.append([params, str(error), isinstance(error, ValueError)])
        b.run("hello", temperature=0.4, best_of=8)
    return found


def test_more_beams_than_there_are_decoders_are_refused_with_the_limit() -> None:
    files("tiny.en")
    for params, message, is_value_error in child.run(refusals):
        assert is_value_error and "1 to 8" in message, params


def test_patience_has_an_effect_or_is_refused() -> None:
    files("tiny.en")
    found = child.run(patience)
    for value, outcome in found.items():
        if isinstance(outcome, str):
            assert "patience" in outcome, (value, outcome)
    worked = {value: outcome for value, outcome in found.items() if not isinstance(outcome, str)}
    if len(worked) > 1:
        assert len({repr(outcome) for outcome in worked.values()}) > 1, "patience is ignored"


def patience() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with bench("tiny.en") as b:
        for value in (0.0, 1.0, 2.0):
            try:
                result = b.run("hello", temperature_inc=0.0, **beam(5, patience=value))
            except ParamsError as error:
                found[str(value)] = str(error)
                b.works_as_before()
            else:
                found[str(value)] = [text_of(result), result.timings.n_decode + result.timings.n_batchd]
    return found
