"""Voice activity through the C API, on the published model in ggml's layout."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests import data
from tests.capi.conftest import quick
from tests.capi.test_context import loader_of
from whispyx import capi
from whispyx.errors import ParamsError, StateError

TOLERANCE_CS = 4  # a window is 3.2: one that is near the threshold may fall on either side


@pytest.fixture(scope="module")
def silero() -> Path:
    return data.or_skip(data.silero_ggml)


@pytest.fixture(scope="module")
def jfk() -> Any:
    return soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")[0]


@pytest.fixture
def vctx(silero: Path) -> Iterator[Any]:
    context = capi.whisper_vad_init_from_file_with_params(str(silero), capi.whisper_vad_default_context_params())
    assert context is not None
    yield context
    capi.whisper_vad_free(context)


def spans(segments: Any) -> list[tuple[float, float]]:
    return [
        (
            capi.whisper_vad_segments_get_segment_t0(segments, i),
            capi.whisper_vad_segments_get_segment_t1(segments, i),
        )
        for i in range(capi.whisper_vad_segments_n_segments(segments))
    ]


def test_speech_is_where_whispercpp_finds_it(
    vctx: Any, jfk: Any, silero: Path, tmp_path: Path, ask_whispercpp: Callable[..., Any]
) -> None:
    np.save(tmp_path / "jfk.npy", jfk)
    theirs = ask_whispercpp("vad", model=str(silero), samples=str(tmp_path / "jfk.npy"))
    segments = capi.whisper_vad_segments_from_samples(vctx, capi.whisper_vad_default_params(), jfk, len(jfk))
    found = spans(segments)
    assert found and all(isinstance(edge, float) for span in found for edge in span)
    np.testing.assert_allclose(capi.whisper_vad_probs(vctx), theirs["probs"], atol=2e-3)
    assert found == [tuple(span) for span in theirs["spans"]]
    capi.whisper_vad_free_segments(segments)


def test_probabilities_are_one_per_window_and_not_copied(vctx: Any, jfk: Any) -> None:
    assert capi.whisper_vad_n_probs(vctx) == 0 and capi.whisper_vad_probs(vctx).shape == (0,)
    assert capi.whisper_vad_detect_speech(vctx, jfk, len(jfk)) is True
    n = -(-len(jfk) // 512)
    probs = capi.whisper_vad_probs(vctx)
    assert capi.whisper_vad_n_probs(vctx) == n == len(probs)
    assert probs.dtype == np.float32 and not probs.flags.writeable
    assert probs.min() >= 0 and probs.max() <= 1
    assert np.shares_memory(probs, capi.whisper_vad_probs(vctx))


def test_segments_from_probs_are_those_from_samples(vctx: Any, jfk: Any) -> None:
    params = capi.whisper_vad_default_params()
    whole = spans(capi.whisper_vad_segments_from_samples(vctx, params, jfk, None))
    assert spans(capi.whisper_vad_segments_from_probs(vctx, params)) == whole
    params.threshold = 5.0  # more than any probability
    assert spans(capi.whisper_vad_segments_from_probs(vctx, params)) == []
    params.threshold = 0.5
    params.speech_pad_ms = 0
    tight = spans(capi.whisper_vad_segments_from_probs(vctx, params))
    assert len(tight) == len(whole)
    assert all(t0 >= w0 and t1 <= w1 for (t0, t1), (w0, w1) in zip(tight, whole, strict=True))


def test_sound_may_come_in_pieces(vctx: Any, jfk: Any) -> None:
    sound = jfk[: 512 * 100]
    assert capi.whisper_vad_detect_speech(vctx, sound, len(sound))
    whole = np.array(capi.whisper_vad_probs(vctx))
    capi.whisper_vad_reset_state(vctx)
    pieces = []
    for start in range(0, 100, 25):
        assert capi.whisper_vad_detect_speech_no_reset(vctx, sound[512 * start : 512 * (start + 25)], 512 * 25)
        pieces.append(np.array(capi.whisper_vad_probs(vctx)))
    # The edges of a piece are mirrored, inside a recording the window goes on: a window there may differ a little.
    assert np.abs(np.concatenate(pieces) - whole).mean() < 0.02
    assert capi.whisper_vad_detect_speech(vctx, sound, len(sound))
    assert (capi.whisper_vad_probs(vctx) == whole).all()


def test_a_model_may_come_through_a_loader(silero: Path, jfk: Any, vctx: Any) -> None:
    closed: list[object] = []
    context = capi.whisper_vad_init_with_params(
        loader_of(silero, close=closed.append), capi.whisper_vad_default_context_params()
    )
    assert context is not None and closed == ["the context"]
    for one in (context, vctx):
        assert capi.whisper_vad_detect_speech(one, jfk, len(jfk))
    assert (capi.whisper_vad_probs(context) == capi.whisper_vad_probs(vctx)).all()
    capi.whisper_vad_free(context)


def test_m5_the_loader_is_closed_when_the_model_is_bad(silero: Path, model: Path) -> None:
    closed: list[object] = []
    params = capi.whisper_vad_default_context_params()
    assert capi.whisper_vad_init_with_params(loader_of(io.BytesIO(b"no"), close=closed.append), params) is None
    assert len(closed) == 1
    half = io.BytesIO(silero.read_bytes()[:400_000])
    assert capi.whisper_vad_init_with_params(loader_of(half, close=closed.append), params) is None
    assert len(closed) == 2
    assert capi.whisper_vad_init_from_file_with_params(str(model), params) is None  # a model of another kind
    assert capi.whisper_vad_init_from_file_with_params(str(silero) + ".missing", params) is None
    assert capi.whisper_init_from_file(str(silero)) is None


def test_silence_and_no_samples_have_no_speech(vctx: Any) -> None:
    params = capi.whisper_vad_default_params()
    for sound in (np.zeros(16000, np.float32), np.zeros(1, np.float32), np.zeros(0, np.float32), None):
        segments = capi.whisper_vad_segments_from_samples(vctx, params, sound, None)
        assert segments is not None and capi.whisper_vad_segments_n_segments(segments) == 0


def test_samples_that_are_not_finite_are_a_failure(vctx: Any) -> None:
    bad = np.zeros(1000, np.float32)
    bad[10] = np.inf
    assert capi.whisper_vad_detect_speech(vctx, bad, len(bad)) is False
    assert capi.whisper_vad_segments_from_samples(vctx, capi.whisper_vad_default_params(), bad, 1000) is None


def test_freeing_twice_is_fine_and_use_after_that_is_an_error(silero: Path) -> None:
    context = capi.whisper_vad_init_from_file_with_params(str(silero), capi.whisper_vad_default_context_params())
    assert context is not None
    segments = capi.whisper_vad_segments_from_probs(context, capi.whisper_vad_default_params())
    capi.whisper_vad_free(context)
    capi.whisper_vad_free(context)
    capi.whisper_vad_free(None)
    with pytest.raises(StateError, match="freed"):
        capi.whisper_vad_detect_speech(context, np.zeros(512, np.float32), 512)
    with pytest.raises(StateError, match="freed"):
        capi.whisper_vad_probs(context)
    with pytest.raises(StateError, match="NULL"):
        capi.whisper_vad_n_probs(None)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        capi.whisper_vad_segments_get_segment_t0(segments, 0)  # type: ignore[arg-type]
    capi.whisper_vad_free_segments(segments)
    capi.whisper_vad_free_segments(segments)
    capi.whisper_vad_free_segments(None)
    with pytest.raises(StateError, match="freed"):
        capi.whisper_vad_segments_n_segments(segments)  # type: ignore[arg-type]


def test_impossible_thread_counts_are_refused(silero: Path) -> None:
    params = capi.whisper_vad_default_context_params()
    params.n_threads = 0
    with pytest.raises(ParamsError, match="n_threads"):
        capi.whisper_vad_init_from_file_with_params(str(silero), params)


def test_v2_a_run_on_any_state_can_leave_silence_out(ctx: Any, silero: Path, jfk: Any) -> None:
    sound = np.concatenate([np.zeros(5 * 16000, np.float32), jfk])
    state = capi.whisper_init_state(ctx)
    params = quick(vad=True, vad_model_path=str(silero))
    assert capi.whisper_full_with_state(ctx, state, params, sound, len(sound)) == 0
    assert capi.whisper_full(ctx, params, sound, len(sound)) == 0
    n = capi.whisper_full_n_vad_segments(ctx)
    assert n > 0
    assert capi.whisper_full_n_vad_segments_from_state(state) == n
    # 5 s of silence, then the sample: whisper.cpp finds the first speech at 531.
    assert abs(capi.whisper_full_get_vad_segment_t0(ctx, 0) - 531) <= TOLERANCE_CS
    for i in range(n):
        assert capi.whisper_full_get_vad_segment_t0(ctx, i) < capi.whisper_full_get_vad_segment_t1(ctx, i)
        assert capi.whisper_full_get_vad_segment_t0_from_state(state, i) == capi.whisper_full_get_vad_segment_t0(ctx, i)
        assert capi.whisper_full_get_vad_segment_t1_from_state(state, i) == capi.whisper_full_get_vad_segment_t1(ctx, i)
    assert capi.whisper_full_n_segments(ctx) > 0
    assert capi.whisper_full_get_segment_t0(ctx, 0) >= 500
    capi.whisper_free_state(state)


def test_v1_a_run_without_it_has_plain_times_again(ctx: Any, silero: Path, jfk: Any) -> None:
    def times() -> list[tuple[int, int]]:
        return [
            (capi.whisper_full_get_segment_t0(ctx, i), capi.whisper_full_get_segment_t1(ctx, i))
            for i in range(capi.whisper_full_n_segments(ctx))
        ]

    assert capi.whisper_full(ctx, quick(), jfk, len(jfk)) == 0
    plain = times()
    assert capi.whisper_full(ctx, quick(vad=True, vad_model_path=str(silero)), jfk, len(jfk)) == 0
    assert capi.whisper_full_n_vad_segments(ctx) > 0
    assert capi.whisper_full(ctx, quick(), jfk, len(jfk)) == 0
    assert times() == plain
    assert capi.whisper_full_n_vad_segments(ctx) == 0


def test_p6_silence_gives_nothing_and_not_the_results_before(ctx: Any, silero: Path, jfk: Any) -> None:
    params = quick(vad=True, vad_model_path=str(silero))
    assert capi.whisper_full(ctx, params, jfk, len(jfk)) == 0
    assert capi.whisper_full_n_segments(ctx) > 0
    silence = np.zeros(48000, np.float32)
    assert capi.whisper_full(ctx, params, silence, len(silence)) == 0
    assert capi.whisper_full_n_segments(ctx) == 0
    assert capi.whisper_full_n_vad_segments(ctx) == 0
    assert capi.whisper_full(ctx, params, jfk, len(jfk)) == 0
    assert capi.whisper_full_parallel(ctx, params, silence, len(silence), 2) == 0
    assert capi.whisper_full_n_segments(ctx) == 0


def test_v3_each_call_uses_the_model_that_it_names(ctx: Any, silero: Path, jfk: Any, tmp_path: Path) -> None:
    assert capi.whisper_full(ctx, quick(vad=True, vad_model_path=str(silero)), jfk, len(jfk)) == 0
    bad = tmp_path / "bad.bin"
    bad.write_bytes(b"no model")
    for path in (str(bad), str(tmp_path / "missing.bin"), None):
        assert capi.whisper_full(ctx, quick(vad=True, vad_model_path=path), jfk, len(jfk)) == -1
        assert capi.whisper_full_n_segments(ctx) == 0
