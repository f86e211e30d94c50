"""Same text, tokens and times as whisper.cpp 1.8.5, setting by setting; every difference has a known reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import data
from tests.oracle.align import dtw_path, row_starts
from tests.oracle.tokens import Special
from tests.parity import judge, run, silence
from tests.parity.compare import Answer, compare
from tests.parity.engines import Engines, reference_python
from tests.parity.grid import MODELS, Case, grid
from tests.parity.times import Rules, token_times, wrap

LEAST = 150  # combinations
# One case of every kind, on the small model and short sounds.
SOME = (
    "tiny.en clip4 greedy",
    "tiny.en clip1 fallback logprob",
    "tiny.en clip0 beam 5",
    "tiny.en clip3 best of 2 at t=0.2",
    "tiny.en clip1 prompt tokens",
    "tiny.en clip2 max_len 12 on words",
    "tiny.en clip1 token times",
    "tiny.en clip4 max_tokens 8",
    "tiny.en clip2 segments no_timestamps",
    "tiny.en clip0 suppress regex capitals",
    "tiny.en clip0 grammar lower case",
    "tiny.en clip1 dtw own heads",
    "tiny.en jfk vad",
    "tiny.en jfk 2 processors",
    "tiny.en clip3 part beyond the end",
    "tiny.en clip0 audio_ctx 512",
    "tiny.en jfk_1s short",
)
CASES = {case.title: case for case in grid()}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, whispercpp_python: Path) -> Iterator[Engines]:
    with Engines(reference_python() or whispercpp_python, tmp_path_factory.mktemp("sounds")) as both:
        yield both


@pytest.mark.parametrize("title", SOME)
def test_a_case_of_each_kind_has_no_unexplained_difference(title: str, engines: Engines) -> None:
    data.or_skip(data.model_file, CASES[title].model)
    row = run.examine(CASES[title], engines)
    print(" | ".join(row.cells()))
    assert row.verdict != run.UNEXPLAINED, row.detail


@pytest.mark.skipif(os.environ.get("WHISPYX_FULL_PARITY", "0") in ("", "0"), reason="WHISPYX_FULL_PARITY is not 1")
def test_the_whole_grid_has_no_unexplained_difference(whispercpp_python: Path) -> None:
    rows = run.run(grid(), reference_python() or whispercpp_python)
    print(run.table(rows))
    assert len(rows) >= LEAST
    assert [f"{row.case.title}: {row.detail}" for row in rows if row.verdict == run.UNEXPLAINED] == []


def test_the_grid_is_large_enough_and_every_title_its_own() -> None:
    assert len(CASES) == len(grid()) >= LEAST
    for model in MODELS:
        assert {case.group for case in grid() if case.model == model} >= {
            "greedy", "beam", "best of", "prompt", "max_len", "max_tokens", "segments", "token times", "dtw", "grammar",
            "suppress", "vad", "part", "2 processors", "audio_ctx",
        }  # fmt: skip
    assert "translate" in {case.group for case in grid()}


def answer(**changed: Any) -> Answer:
    segment = {
        "t0": 0, "t1": 200, "text_hex": b" hello".hex(), "speaker_turn_next": False, "tokens": [50363, 23748, 50463],
        "token_t0": [0, 0, 200], "token_t1": [0, 200, 200], "t_dtw": [-1, 90, -1],
    }  # fmt: skip
    return {"code": 0, "language": "en", "segments": [{**segment, **changed}]}


TIMED = Case("test", "", "tiny.en", "jfk", {"token_timestamps": True}, aheads={"preset": "tiny.en"})


def test_equal_answers_have_no_difference() -> None:
    assert compare(TIMED, answer(), answer()).none
    assert compare(TIMED, answer(t1=201), answer()).none  # one unit is allowed


@pytest.mark.parametrize(
    "changed",
    [
        {"t1": 202},
        {"tokens": [50363, 23749, 50463]},
        {"text_hex": b" hallo".hex()},
        {"token_t0": [0, 2, 200]},
        {"token_t1": [0, 198, 200]},
        {"t_dtw": [-1, 92, -1]},
        {"speaker_turn_next": True},
    ],
    ids=str,
)
def test_a_changed_answer_is_seen(changed: dict[str, Any]) -> None:
    assert not compare(TIMED, answer(**changed), answer()).none
    assert not compare(TIMED, answer(), {**answer(), "segments": []}).none
    assert not compare(TIMED, {**answer(), "code": -3}, answer()).none


def test_times_that_a_case_does_not_ask_for_are_not_compared() -> None:
    untimed = replace(TIMED, params={}, aheads=None)
    assert compare(untimed, answer(token_t0=[0, 9, 200], t_dtw=[-1, 0, -1]), answer()).none


def test_random_words_are_those_of_the_cpp_standard() -> None:
    """C++ 2011, 26.5.5: the 10000th word of a default mt19937, whose seed is 5489."""
    assert judge.words(5489, 10000)[-1] == 4123659995


def test_a_path_costs_the_sum_of_its_cells() -> None:
    cost = np.random.default_rng(0).normal(size=(6, 40))
    path = dtw_path(cost)
    starts = row_starts(path, 6)
    cells = sum(cost[row, column] for row, column in path)
    assert judge._path_cost(cost, starts) == pytest.approx(cells)
    assert judge._path_cost(cost, [*starts[:-1], starts[-1] + 1]) > cells + 1e-9


def test_speech_cut_out_comes_back_to_its_place() -> None:
    """Two regions: 1.00 to 2.00 s with 0.1 s of overlap and 0.1 s of silence, then 5.00 to 6.00 s."""
    samples = np.arange(16000 * 8, dtype=np.float32)
    heard, way = silence.cut(samples, [(100, 200), (500, 600)], 0.1)
    assert np.array_equal(heard[:17600], samples[16000:33600]) and not heard[17600:19200].any()
    assert np.array_equal(heard[19200:], samples[80000:96000])
    assert way.segment(0, 50) == (100, 150) and way.segment(120, 220) == (500, 600)
    assert way.token(104) == 200 and way.token(116) == 500  # in the silence between: the nearer end


def test_silence_shares_a_segment_out_by_weight() -> None:
    """Observed on whisper.cpp 1.8.5: weights 5.01, 5.01, 3.01, 5.01 on 20 s end at 5.55, 11.10, 14.43 and 20.00 s."""
    rules = Rules(Special.of(51864), [b" abcde", b" ab.", b" abc"])
    ids = [50363, 0, 0, 2, 0, 50363 + 1000]
    flat = {"tid": [50363] * 5 + [51363], "pt": [0.0] * 6, "ptsum": [0.0] * 6}
    segment = {"t0": 0, "t1": 2000, "tokens": ids, **flat}
    [(t0, t1)] = token_times([segment], np.zeros(30 * 16000, np.float32), rules)
    assert (t0[0], t1[0], t0[-1], t1[-1]) == (0, 0, 2000, 2000)
    assert t1[1:5] == [555, 1110, 1443, 2000]


def test_pieces_are_never_cut_inside_a_character() -> None:
    rules = Rules(Special.of(51864), ["ü".encode()[:1], "ü".encode()[1:], b" a"])
    segment = {"t0": 0, "t1": 30, "text_hex": "", "tokens": [2, 0, 1, 2], "token_t0": [0, 10, 15, 20]}
    pieces = wrap(segment, rules, 1, False)
    assert [bytes.fromhex(piece["text_hex"]).decode() for piece in pieces] == [" a", "ü", " a"]
    assert [(piece["t0"], piece["t1"]) for piece in pieces] == [(0, 10), (10, 20), (20, 30)]
