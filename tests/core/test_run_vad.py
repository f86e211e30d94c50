"""Voice activity detection in front of a run, on real speech."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import whispyx.plugins
from tests import data
from tests.oracle.vad_model import SmallSilero
from whispyx._core.align.heads import resolve
from whispyx._core.context import Context
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams, VadParams
from whispyx._core.run import FullRun, full
from whispyx._core.vad.detect import VadModel
from whispyx._core.vad.regions import regions, to_cs
from whispyx.errors import Aborted, AudioError, ModelFormatError, ModelNotFoundError, ParamsError

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


def times(result: Any) -> list[tuple[int, int, bytes]]:
    return [(segment.t0, segment.t1, segment.text) for segment in result.segments]


def test_V2_states_that_take_turns_do_not_disturb_each_other(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    late = np.concatenate([np.zeros(5 * SAMPLE_RATE, np.float32), jfk])
    with ctx.new_state() as one, ctx.new_state() as other:
        plain = times(full(ctx, other, params(silero), jfk))
        first, second = FullRun(ctx, one, params(silero), late), FullRun(ctx, other, params(silero), jfk)
        while "DONE" not in (first.phase, second.phase):
            first.step()
            second.step()
        first.run()
        assert times(second.run()) == plain
    assert second.vad_segments[0][0] < 100 < first.vad_segments[0][0]


def test_V3_a_file_that_holds_another_model_than_before_is_read_again(
    ctx: Any, silero: str, jfk: np.ndarray, tmp_path: Path
) -> None:
    """A network that hears no speech anywhere takes turns with the real one under one name."""
    deaf = SmallSilero(changes={"_model.decoder.decoder.2.bias": np.asarray(-60.0, np.float32)}).to_bytes()
    path = tmp_path / "voice.bin"
    with ctx.new_state() as state:
        path.write_bytes(deaf)
        assert full(ctx, state, params(str(path)), jfk).segments == ()
        shutil.copy(silero, path)
        assert full(ctx, state, params(str(path)), jfk).segments
        path.write_bytes(deaf)
        assert full(ctx, state, params(str(path)), jfk).segments == ()


def test_V7_every_token_lies_in_a_region_of_speech(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    gap = np.zeros(6 * SAMPLE_RATE, np.float32)
    with ctx.new_state() as state:
        result = full(ctx, state, params(silero, token_timestamps=True), np.concatenate([gap, jfk, gap, jfk]))
    found = [(token.t0, token.t1) for s in result.segments for token in s.tokens if token.t0 >= 0]
    assert len(found) > 20
    for t0, t1 in found:
        assert any(a <= t0 <= b for a, b in result.vad_segments), (t0, result.vad_segments)
        assert any(a <= t1 <= b + 1 for a, b in result.vad_segments), (t1, result.vad_segments)


def test_detection_can_be_stopped(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    asked_in: list[str] = []

    def stop() -> bool:
        asked_in.append(run.phase)
        return True

    with ctx.new_state() as state:
        run = FullRun(ctx, state, params(silero, abort_callback=stop), np.tile(jfk, 60))
        with pytest.raises(Aborted):
            run.run()
        assert asked_in[0] == "VAD"
        assert full(ctx, state, params(silero), jfk).segments


def test_four_threads_on_one_model_find_what_one_finds(ctx: Any, silero: str, jfk: np.ndarray) -> None:
    late = np.concatenate([np.zeros(5 * SAMPLE_RATE, np.float32), jfk])
    jobs = [(jfk, True), (late, True), (jfk, False), (late, False)]

    def work(i: int) -> None:
        sound, vad = jobs[i]
        with ctx.new_state() as state:
            found[i] = times(full(ctx, state, params(silero, vad=vad, n_threads=1), sound))

    found: list[Any] = [None] * len(jobs)
    for i in range(len(jobs)):
        work(i)
    alone, found = found, [None] * len(jobs)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_words_keep_their_hundredths_of_a_second_in_parts_and_behind_silence(
    ctx: Any, silero: str, jfk: np.ndarray
) -> None:
    ctx.set_aheads(resolve("tiny.en", 0, (), ctx.hparams))
    late = np.concatenate([np.zeros(5 * SAMPLE_RATE, np.float32), jfk])
    plain = {"n_threads": 2, "temperature_inc": 0.0, "word_timestamps": True}
    try:
        with ctx.new_state() as state:
            whole = full(ctx, state, FullParams(**plain), jfk)
            after = full(ctx, state, params(silero, word_timestamps=True), late)
            parts = full_parallel(ctx, state, FullParams(**plain), jfk, 2)
    finally:
        ctx.set_aheads(())
    at = {w.text.strip(b" .").lower(): w.t0 for s in whole.segments for w in s.words}
    shifted = [(w.text.strip(b" .").lower(), w) for s in after.segments for w in s.words]
    assert [word for word, w in shifted if abs(w.t0 - 5 - at[word]) > 0.15 and word in (b"fellow", b"americans")] == []
    for result in (after, parts):
        for s in result.segments:
            assert all(s.t0 / 100 <= w.t0 < w.t1 <= s.t1 / 100 for w in s.words)
    second = parts.segments[-1]
    assert second.words[0].t0 >= second.t0 / 100 > 5
