"""Whole runs with voice activity detection in front: what is heard, and where on the recording's time line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

import whispyx.plugins
from tests import data
from tests.oracle.vad_model import SmallSilero
from whispyx._core.context import Context
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams, VadParams
from whispyx._core.run import FullRun, full
from whispyx._core.state import State
from whispyx.errors import Aborted, ModelFormatError, ModelNotFoundError, ParamsError

Samples = npt.NDArray[np.float32]

BEFORE_S, BETWEEN_S = 5, 6
JFK_CS = 1100
# Marks of segments are 20 ms apart, and lie a little outside of what the detector takes for speech.
SLACK_CS = 35


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    whispyx.plugins.load()
    context = Context.load(str(data.or_skip(data.model_file, "tiny.en")))
    yield context
    context.close()


@pytest.fixture
def state(ctx: Context) -> Iterator[State]:
    with State(ctx) as state:
        yield state


@pytest.fixture(scope="module")
def silero() -> str:
    return str(data.or_skip(data.silero_ggml))


@pytest.fixture(scope="module")
def jfk() -> Samples:
    return np.asarray(soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")[0])


@pytest.fixture(scope="module")
def late(jfk: Samples) -> Samples:
    """The same speech twice, with silence before it and between."""
    before, between = np.zeros(16000 * BEFORE_S, np.float32), np.zeros(16000 * BETWEEN_S, np.float32)
    return np.concatenate([before, jfk, between, jfk])


@pytest.fixture(scope="module")
def deaf(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A network that hears no speech anywhere."""
    path = tmp_path_factory.mktemp("deaf") / "deaf.bin"
    path.write_bytes(SmallSilero(changes={"_model.decoder.decoder.2.bias": np.float32(-60.0)}).to_bytes())
    return str(path)


def params(model: str | None = None, **changes: Any) -> FullParams:
    vad = {"vad": True, "vad_model_path": model} if model else {}
    return FullParams(**{"n_threads": 2, "temperature_inc": 0.0, "language": "en", **vad, **changes})


def times(result: Any) -> list[tuple[int, int, bytes]]:
    return [(segment.t0, segment.t1, segment.text) for segment in result.segments]


def spoken(cs: int) -> bool:
    """Whether a time lies in one of the two pieces of speech."""
    first = 100 * BEFORE_S
    second = first + JFK_CS + 100 * BETWEEN_S
    return any(start - SLACK_CS <= cs <= start + JFK_CS + SLACK_CS for start in (first, second))


def test_silence_is_cut_out_and_times_are_those_of_the_recording(
    ctx: Context, state: State, late: Samples, silero: str
) -> None:
    result = full(ctx, state, params(silero), late)
    assert result.segments and result.vad_segments
    assert 525 <= result.vad_segments[0][0] <= 535
    # Between regions a segment's ends are interpolated over the silence, as whisper.cpp does.
    assert spoken(result.segments[0].t0) and spoken(result.segments[-1].t1), times(result)
    text = b"".join(segment.text for segment in result.segments).lower()
    assert text.count(b"ask not what your country") == 2
    starts = [t for segment in result.segments for t in (segment.t0, segment.t1)]
    assert starts == sorted(starts)


def test_V7_token_times_are_those_of_the_recording(ctx: Context, state: State, late: Samples, silero: str) -> None:
    result = full(ctx, state, params(silero, token_timestamps=True), late)
    regions = result.vad_segments
    seen = 0
    for segment in result.segments:
        for token in segment.tokens:
            if token.t0 < 0:
                continue
            assert token.t1 > token.t0
            assert any(a <= token.t0 <= b for a, b in regions), (token.t0, regions)
            assert any(a <= token.t1 <= b + 1 for a, b in regions), (token.t1, regions)
            seen += 1
    assert seen > 20


def test_V1_a_run_without_detection_keeps_its_own_times(
    ctx: Context, state: State, jfk: Samples, late: Samples, silero: str
) -> None:
    with State(ctx) as fresh:
        expected = times(full(ctx, fresh, params(), jfk))
    full(ctx, state, params(silero), late)
    result = full(ctx, state, params(), jfk)
    assert times(result) == expected
    assert not result.vad_segments


def test_V2_each_state_has_its_own_detection(ctx: Context, state: State, jfk: Samples, silero: str) -> None:
    late = np.concatenate([np.zeros(80000, np.float32), jfk])
    with State(ctx) as other:
        mine = FullRun(ctx, state, params(silero), late)
        theirs = FullRun(ctx, other, params(silero), jfk)
        plain = times(full(ctx, other, params(silero), jfk))
        while "DONE" not in (mine.phase, theirs.phase):  # the two take turns, step by step
            mine.step()
            theirs.step()
        mine.run()
        theirs.run()
        assert times(theirs) == plain
    assert [(b[0] - a[0], b[1] - a[1]) for a, b in zip(plain, times(mine), strict=True)] != [(0, 0)] * len(plain)
    assert all(segment.t0 >= 500 - SLACK_CS for segment in mine.segments)
    assert theirs.vad_segments[0][0] < 100 < mine.vad_segments[0][0]


def test_V3_another_model_is_used_from_the_next_run_on(
    ctx: Context, state: State, jfk: Samples, silero: str, deaf: str
) -> None:
    first = times(full(ctx, state, params(silero), jfk))
    assert first
    assert not full(ctx, state, params(deaf), jfk).segments
    assert times(full(ctx, state, params(silero), jfk)) == first


def test_V3_a_model_file_that_changed_is_read_again(
    ctx: Context, state: State, jfk: Samples, silero: str, deaf: str, tmp_path: Path
) -> None:
    path = tmp_path / "vad.bin"
    path.write_bytes(Path(deaf).read_bytes())
    assert not full(ctx, state, params(str(path)), jfk).segments
    path.write_bytes(Path(silero).read_bytes())
    assert full(ctx, state, params(str(path)), jfk).segments


def test_silence_gives_no_segments_and_none_of_the_run_before(
    ctx: Context, state: State, jfk: Samples, silero: str
) -> None:
    assert full(ctx, state, params(silero), jfk).segments
    for quiet in (np.zeros(48000, np.float32), np.zeros(1, np.float32), np.empty(0, np.float32)):
        result = full(ctx, state, params(silero), quiet)
        assert not result.segments and not result.vad_segments


def test_parameters_of_the_detection_are_honoured(ctx: Context, state: State, jfk: Samples, silero: str) -> None:
    strict = VadParams(min_speech_duration_ms=100000)
    assert not full(ctx, state, params(silero, vad_params=strict), jfk).segments
    wide = full(ctx, state, params(silero, vad_params=VadParams(min_silence_duration_ms=2000)), jfk)
    assert len(wide.vad_segments) < len(full(ctx, state, params(silero), jfk).vad_segments)


def test_parts_side_by_side_have_the_times_of_the_recording(
    ctx: Context, state: State, late: Samples, silero: str
) -> None:
    result = full_parallel(ctx, state, params(silero), late, 2)
    assert result.segments
    assert spoken(result.segments[0].t0) and spoken(result.segments[-1].t1), times(result)
    assert result.segments[-1].t0 > 100 * BEFORE_S + JFK_CS


@pytest.mark.parametrize("n_processors", [1, 2])
def test_a_model_that_is_missing_or_no_model_has_code_minus_1(
    ctx: Context, state: State, jfk: Samples, tmp_path: Path, n_processors: int
) -> None:
    (tmp_path / "text.bin").write_text("nothing of the kind")
    for name, kind in (("none.bin", ModelNotFoundError), ("text.bin", ModelFormatError)):
        with pytest.raises(kind) as caught:
            full_parallel(ctx, state, params(str(tmp_path / name)), jfk, n_processors)
        assert caught.value.code == -1
    with pytest.raises(ParamsError, match="vad_model_path"):
        full_parallel(ctx, state, params(vad=True), jfk, n_processors)
    assert full(ctx, state, params(), jfk).segments  # the state goes on working


def test_detection_can_be_stopped(ctx: Context, state: State, jfk: Samples, silero: str) -> None:
    here: list[str] = []
    run = FullRun(ctx, state, params(silero, abort_callback=lambda: here.append(run.phase) or True), np.tile(jfk, 60))
    with pytest.raises(Aborted):
        run.run()
    assert here[0] == "VAD"
    assert full(ctx, state, params(silero), jfk).segments


def test_four_threads_share_a_model_and_find_what_one_finds(
    ctx: Context, jfk: Samples, late: Samples, silero: str
) -> None:
    jobs = [(jfk, silero), (late, silero), (jfk, None), (late, None)]

    def work(i: int) -> None:
        with State(ctx) as state:
            sound, model = jobs[i]
            found[i] = times(full(ctx, state, params(model, n_threads=1), sound))

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
