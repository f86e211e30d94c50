"""whisper_full_parallel: one result for the whole audio, or the status of the part that failed."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.capi.conftest import near, quick, script, spans
from whispyx import capi
from whispyx.errors import ParamsError

LONG = np.random.default_rng(7).normal(0, 0.1, 16000 * 16).astype(np.float32)
BEG, EOT, WORD = 50364, 50257, 400
FOUR_SECONDS = [BEG, WORD, WORD + 1, BEG + 200, BEG + 200, EOT]


def scripted(**fields: Any) -> Any:
    return quick(logits_filter_callback=script(FOUR_SECONDS), **fields)


@pytest.mark.parametrize("n", [0, -1, -(2**31)])
def test_p5_there_is_at_least_one_processor(ctx: Any, n: int) -> None:
    with pytest.raises(ParamsError, match="n_processors"):
        capi.whisper_full_parallel(ctx, quick(), LONG, len(LONG), n)
    with pytest.raises(ParamsError, match="n_processors"):
        capi.whisper_full_parallel(ctx, quick(), None, 0, n)


def test_one_processor_is_whisper_full(ctx: Any) -> None:
    assert capi.whisper_full(ctx, scripted(), LONG, len(LONG)) == 0
    expected = spans(ctx)
    assert capi.whisper_full_parallel(ctx, scripted(), LONG, len(LONG), 1) == 0
    assert spans(ctx) == expected == near([(0, 400), (400, 800), (800, 1200), (1200, 1600)])


def test_p1_parts_have_the_times_of_the_whole(ctx: Any) -> None:
    assert capi.whisper_full_parallel(ctx, scripted(token_timestamps=True), LONG, len(LONG), 2) == 0
    assert spans(ctx) == near([(0, 400), (400, 800), (800, 1200), (1200, 1600)])
    for i, (t0, t1) in enumerate(spans(ctx)):
        for j in range(capi.whisper_full_n_tokens(ctx, i)):
            token = capi.whisper_full_get_token_data(ctx, i, j)
            assert t0 <= token.t0 <= token.t1 <= t1
            assert capi.whisper_full_get_token_t0(ctx, i, j) == token.t0


def test_new_segments_of_all_parts_are_reported_and_readable(ctx: Any) -> None:
    seen: list[int] = []

    def on_new(context: Any, state: Any, n_new: int, data: Any) -> None:
        n = capi.whisper_full_n_segments(context)
        seen.extend(capi.whisper_full_get_segment_t0(context, i) for i in range(n - n_new, n))

    assert capi.whisper_full_parallel(ctx, scripted(new_segment_callback=on_new), LONG, len(LONG), 2) == 0
    assert seen == [0, 400, 800, 1200]


def test_p3_the_status_of_a_part_is_the_status_of_all(ctx: Any) -> None:
    assert capi.whisper_full_parallel(ctx, quick(audio_ctx=101), LONG, len(LONG), 2) == -5
    assert capi.whisper_full_parallel(ctx, quick(language="klingon"), LONG, len(LONG), 2) == -3
    assert capi.whisper_full_parallel(ctx, quick(abort_callback=lambda data: True), LONG, len(LONG), 2) in (-6, -8, -9)


def test_p4_language_and_timings_are_those_of_the_whole(ctx: Any) -> None:
    capi.whisper_reset_timings(ctx)
    assert capi.whisper_full_parallel(ctx, scripted(language="auto"), LONG, len(LONG), 2) == 0
    found = capi.whisper_full_lang_id(ctx)
    assert 0 <= found <= 98
    timings = capi.whisper_get_timings(ctx)
    assert timings is not None and timings.encode_ms > 0 and timings.sample_ms > 0


def test_an_exception_in_a_callback_reaches_the_caller(ctx: Any) -> None:
    class Mine(Exception):
        pass

    def fail(*_: object) -> bool:
        raise Mine

    for name in ("new_segment", "encoder_begin", "abort", "logits_filter"):
        params = scripted()
        setattr(params, f"{name}_callback", fail)
        with pytest.raises(Mine):
            capi.whisper_full_parallel(ctx, params, LONG, len(LONG), 2)
    assert capi.whisper_full(ctx, quick(), LONG, 16000) == 0


def test_b32_the_logits_filter_of_all_parts_runs_one_at_a_time(ctx: Any) -> None:
    inside: list[int] = []
    threads = set()

    def look(context: Any, state: Any, tokens: Any, n: int, logits: Any, data: Any) -> None:
        inside.append(1)
        assert len(inside) == 1
        threads.add(threading.get_ident())
        time.sleep(0.002)  # another thread would come in now
        data(context, state, tokens, n, logits, None)
        inside.pop()

    params = quick(logits_filter_callback=look, logits_filter_callback_user_data=script(FOUR_SECONDS))
    assert capi.whisper_full_parallel(ctx, params, LONG, len(LONG), 2) == 0
    assert len(threads) == 2
    assert spans(ctx) == near([(0, 400), (400, 800), (800, 1200), (1200, 1600)])


def test_no_samples_find_nothing(ctx: Any) -> None:
    assert capi.whisper_full_parallel(ctx, quick(), LONG, len(LONG), 2) == 0
    assert capi.whisper_full_parallel(ctx, quick(), None, 0, 2) == 0
    assert capi.whisper_full_n_segments(ctx) == 0


def test_a_stored_spectrogram_cannot_be_cut(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, LONG, len(LONG), 1) == 0
    with pytest.raises(ParamsError, match="spectrogram"):
        capi.whisper_full_parallel(ctx, quick(), None, 0, 2)
