"""Voice activity detection in front of a run, on real speech."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import whispyx.plugins
from tests import data
from whispyx._core.context import Context
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams, VadParams
from whispyx._core.run import FullRun, full
from whispyx._core.vad.detect import VadModel
from whispyx._core.vad.regions import regions, to_cs
from whispyx.errors import AudioError, ModelFormatError, ModelNotFoundError, ParamsError

SAMPLE_RATE = 16000
CS = 160  # samples


@pytest.fixture(scope="module")
def ctx() -> Iterator[Any]:
    whispyx.plugins.load()
    with Context.load(str(data.or_skip(data.model_file, "tiny.en"))) as ctx:
        yield ctx


@pytest.fixture(scope="module")
def silero() -> str:
    return str(data.or_skip(data.silero_ggml))


@pytest.fixture(scope="module")
def jfk() -> np.ndarray:
    samples, rate = soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")
    assert rate == SAMPLE_RATE
    return np.asarray(samples)


def params(silero: str, **fields: Any) -> FullParams:
    return FullParams(**{"n_threads": 2, "temperature_inc": 0.0, "vad": True, "vad_model_path": silero, **fields})


def test_speech_behind_five_seconds_of_silence_keeps_its_times(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    shifted = np.concatenate([np.zeros(5 * SAMPLE_RATE, np.float32), jfk])
    with ctx.new_state() as state:
        result = full(ctx, state, params(silero, token_timestamps=True), shifted)
    assert "ask not what your country" in b"".join(s.text for s in result.segments).decode().lower()
    # whisper.cpp 1.8.5 hears the first speech at 5.31 s.
    assert abs(result.vad_segments[0][0] - 531) <= 3
    assert abs(result.segments[0].t0 - 531) <= 3
    assert result.segments[-1].t1 <= len(shifted) / CS
    for segment in result.segments:
        assert segment.t0 <= segment.t1
        times = [(token.t0, token.t1) for token in segment.tokens]
        assert all(segment.t0 - 2 <= t0 <= t1 <= segment.t1 + 2 for t0, t1 in times)


def test_the_regions_are_those_of_the_detector(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    settings = VadParams(threshold=0.6, min_silence_duration_ms=50)
    with VadModel.load(silero) as voice:
        expected = to_cs(regions(voice.detect(jfk), settings, voice.n_window))
    with ctx.new_state() as state:
        run = FullRun(ctx, state, params(silero, vad_params=settings), jfk)
        result = run.run()
        assert run.vad_segments == list(result.vad_segments) == expected


def test_V1_the_time_map_of_a_run_does_not_outlive_it(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    late = np.concatenate([np.zeros(3 * SAMPLE_RATE, np.float32), jfk])
    with ctx.new_state() as state:
        before = full(ctx, state, FullParams(n_threads=2), jfk)
        full(ctx, state, params(silero), late)
        after = full(ctx, state, FullParams(n_threads=2), jfk)
    assert [(s.t0, s.t1, s.text) for s in after.segments] == [(s.t0, s.t1, s.text) for s in before.segments]
    assert after.vad_segments == ()


def test_V2_any_state_can_do_it_and_keeps_its_own_regions(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    with ctx.new_state() as one, ctx.new_state() as other:
        first, second = (full(ctx, state, params(silero), jfk) for state in (one, other))
    assert first.segments == second.segments and first.vad_segments == second.vad_segments


def test_V3_another_model_file_is_honoured_on_the_same_state(
    ctx: Any, silero: str, jfk: np.ndarray, tmp_path: Path
) -> None:
    moved = tmp_path / "voice.bin"
    with ctx.new_state() as state:
        full(ctx, state, params(silero), jfk)
        with pytest.raises(ModelNotFoundError) as caught:
            full(ctx, state, params(str(moved)), jfk)
        assert caught.value.code == -1
        shutil.copy(silero, moved)
        assert full(ctx, state, params(str(moved)), jfk).vad_segments
        moved.write_bytes(b"no model")
        with pytest.raises(ModelFormatError):
            full(ctx, state, params(str(moved)), jfk)
        assert full(ctx, state, params(silero), jfk).vad_segments


def test_silence_gives_nothing_and_nothing_old(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    with ctx.new_state() as state:
        assert full(ctx, state, params(silero), jfk).segments
        result = full(ctx, state, params(silero), np.zeros(10 * SAMPLE_RATE, np.float32))
        assert result.segments == () and result.vad_segments == () and result.language is None
        assert full(ctx, state, params(silero), np.zeros(0, np.float32)).segments == ()


def test_V7_tokens_of_parts_keep_their_place_too(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    gap = np.zeros(4 * SAMPLE_RATE, np.float32)
    twice = np.concatenate([jfk, gap, jfk])
    with ctx.new_state() as state:
        result = full_parallel(ctx, state, params(silero, token_timestamps=True), twice, 2)
    second = 100 * (len(jfk) + len(gap)) // SAMPLE_RATE
    tail = [s for s in result.segments if s.t0 >= second]
    assert tail and tail[0].tokens[1].t0 >= second
    assert result.segments[-1].t1 <= len(twice) / CS


def test_what_cannot_be_done_is_refused(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    with ctx.new_state() as state:
        with pytest.raises(ParamsError, match="vad_model_path"):
            full(ctx, state, FullParams(vad=True), jfk)
        state.pcm_to_mel(jfk)
        with pytest.raises(AudioError):
            full(ctx, state, params(silero), None)
