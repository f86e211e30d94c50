"""One recording in several parts: each part as if it were alone, times those of the whole."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests import data
from tests.core.tiny import pair, recipe_of
from tests.oracle.tiny_model import speechlike
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.errors import Aborted, AudioError, ComputeMemoryError, ParamsError

SAMPLES = speechlike(40, 3)
SAMPLE_RATE = 16000


def model(**changes: Any) -> Any:
    return pair(recipe_of("f16", seed=3, end_after=12, **changes))


def params(**fields: Any) -> FullParams:
    return FullParams(**{"n_threads": 1, "temperature_inc": 0.0, **fields})


def alone(ctx: Any, samples: np.ndarray, shift_cs: int, **fields: Any) -> list[tuple[int, int, list[int]]]:
    """What a run over some samples gives, moved to where they lie."""
    with ctx.new_state() as state:
        result = full(ctx, state, params(**fields), samples)
    return [(s.t0 + shift_cs, s.t1 + shift_cs, [t.id for t in s.tokens]) for s in result.segments]


def triples(result: Any) -> list[tuple[int, int, list[int]]]:
    return [(s.t0, s.t1, [t.id for t in s.tokens]) for s in result.segments]


@pytest.mark.parametrize("n", [2, 3])
def test_P1_every_part_is_recognised_as_if_alone_and_its_times_are_those_of_the_recording(n: int) -> None:
    size = len(SAMPLES) // n
    with model().context(True) as ctx, ctx.new_state() as state:
        expected = []
        for i in range(n):
            part = SAMPLES[i * size : (i + 1) * size if i < n - 1 else None]
            expected += alone(ctx, part, 100 * i * size // SAMPLE_RATE, token_timestamps=True)
        result = full_parallel(ctx, state, params(token_timestamps=True), SAMPLES, n)
    assert triples(result) == expected and len(expected) >= n
    for segment in result.segments:
        assert all(segment.t0 <= token.t0 <= token.t1 <= segment.t1 for token in segment.tokens)


def test_one_part_is_an_ordinary_run() -> None:
    with model().context(True) as ctx, ctx.new_state() as state:
        result = full_parallel(ctx, state, params(), SAMPLES, 1)
        assert triples(result) == triples(full(ctx, state, params(), SAMPLES))


def test_offset_and_duration_choose_what_is_divided() -> None:
    with model().context(True) as ctx, ctx.new_state() as state:
        result = full_parallel(ctx, state, params(offset_ms=5000, duration_ms=30000), SAMPLES, 2)
        second = alone(ctx, SAMPLES[20 * SAMPLE_RATE : 35 * SAMPLE_RATE], 2000)
    assert min(s.t0 for s in result.segments) >= 500
    assert max(s.t1 for s in result.segments) <= 3500
    assert triples(result)[-len(second) :] == second


def test_P2_split_points_beyond_22_minutes_do_not_overflow() -> None:
    minutes = np.tile(SAMPLES, 35)  # 23 min 20 s; the last part begins at 21 million samples and more
    with model(n_text_ctx=64).context(True) as ctx, ctx.new_state() as state:
        # A short context keeps this quick; where the parts begin does not depend on it.
        result = full_parallel(ctx, state, params(audio_ctx=50, max_tokens=3), minutes, 60)
    last = 100 * (59 * (len(minutes) // 60)) // SAMPLE_RATE
    assert any(s.t0 >= last for s in result.segments)
    assert all(0 <= s.t0 <= s.t1 <= len(minutes) / 160 for s in result.segments)


def test_P3_a_failure_in_any_part_is_raised_and_the_state_stays_usable() -> None:
    def fail(tokens: list[Any], logits: np.ndarray) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise KeyError("from the second part")

    with model().context(True) as ctx, ctx.new_state() as state:
        with pytest.raises(KeyError, match="from the second part") as caught:
            full_parallel(ctx, state, params(logits_filter_callback=fail), SAMPLES, 2)
        assert any(entry.name == "fail" for entry in caught.traceback)
        assert triples(full(ctx, state, params(), SAMPLES)) == alone(ctx, SAMPLES, 0)


def test_an_abort_stops_all_parts() -> None:
    with model().context(True) as ctx, ctx.new_state() as state, pytest.raises(Aborted):
        full_parallel(ctx, state, params(abort_callback=lambda: True), SAMPLES, 3)


def test_ctrl_c_while_the_parts_begin_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    begun = []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        begun.append(thread)
        if len(begun) == 2:
            raise KeyboardInterrupt

    with model().context(True) as ctx, ctx.new_state() as state:
        alone = full(ctx, state, params(), SAMPLES)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                full_parallel(ctx, state, params(), SAMPLES, 4)
        for thread in begun:
            thread.join(timeout=60)
        assert len(begun) == 2 and not any(thread.is_alive() for thread in begun)
        assert triples(full(ctx, state, params(), SAMPLES)) == triples(alone)


def test_a_thread_that_dies_at_once_is_a_failure_and_no_missing_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with model().context(True) as ctx, ctx.new_state() as state:
        alone = full(ctx, state, params(), SAMPLES)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "run", lambda thread: None)
            with pytest.raises(ComputeMemoryError, match="part 1"):
                full_parallel(ctx, state, params(), SAMPLES, 2)
        assert triples(full(ctx, state, params(), SAMPLES)) == triples(alone)


def test_ctrl_c_while_waiting_for_the_other_parts_stops_them() -> None:
    def begin() -> bool:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.5)  # the first part is done then
            os.kill(os.getpid(), signal.SIGINT)
        return True

    with model().context(True) as ctx, ctx.new_state() as state:
        alone = full(ctx, state, params(), SAMPLES)
        with pytest.raises(KeyboardInterrupt):
            full_parallel(ctx, state, params(encoder_begin_callback=begin), SAMPLES, 2)
        assert triples(full(ctx, state, params(), SAMPLES)) == triples(alone)


def test_P4_counters_of_all_parts_are_added_and_the_language_is_that_of_the_first() -> None:
    both = pair(recipe_of("f16", seed=11, n_vocab=51865, end_after=12))
    with both.context(True) as ctx, ctx.new_state() as state:
        result = full_parallel(ctx, state, params(language=None), SAMPLES, 2)
        first = full(ctx, state, params(language=None), SAMPLES[: len(SAMPLES) // 2])
        second = full(ctx, state, params(language=first.language), SAMPLES[len(SAMPLES) // 2 :])
    assert result.language == first.language
    assert result.timings.n_encode == first.timings.n_encode + second.timings.n_encode
    assert result.timings.n_sample == first.timings.n_sample + second.timings.n_sample
    assert triples(result)[-len(second.segments) :] == [
        (s.t0 + 2000, s.t1 + 2000, [t.id for t in s.tokens]) for s in second.segments
    ]


@pytest.mark.parametrize("n", [0, -1, 65, 1.5, True, None, "2"])
def test_P5_counts_that_are_not_possible_are_refused(n: Any) -> None:
    with model().context(True) as ctx, ctx.new_state() as state, pytest.raises(ParamsError, match="n_processors"):
        full_parallel(ctx, state, params(), SAMPLES, n)


@pytest.mark.parametrize("n_samples", [0, 1, 3, 1600])
def test_more_parts_than_there_is_sound_for(n_samples: int) -> None:
    with model().context(True) as ctx, ctx.new_state() as state:
        result = full_parallel(ctx, state, params(), SAMPLES[:n_samples], 8)
    assert all(s.t1 <= n_samples / 160 + 1 for s in result.segments)


def test_a_spectrogram_cannot_be_divided() -> None:
    with model().context(True) as ctx, ctx.new_state() as state, pytest.raises(AudioError):
        full_parallel(ctx, state, params(), None, 2)


def test_every_segment_is_told_once_and_in_order() -> None:
    told: list[Any] = []
    with model().context(True) as ctx, ctx.new_state() as state:
        result = full_parallel(ctx, state, params(new_segment_callback=told.extend), SAMPLES, 3)
    assert [id(s) for s in told] == [id(s) for s in result.segments]
    assert [s.t0 for s in told] == sorted(s.t0 for s in told)


def test_P6_silence_found_by_voice_activity_gives_no_old_results() -> None:
    silero = str(data.or_skip(data.silero_ggml))
    with model().context(True) as ctx, ctx.new_state() as state:
        assert full_parallel(ctx, state, params(), SAMPLES, 2).segments
        result = full_parallel(ctx, state, params(vad=True, vad_model_path=silero), np.zeros(80000, np.float32), 2)
    assert result.segments == () and result.vad_segments == ()
