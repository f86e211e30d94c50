"""Whole runs: the order of the phases, callbacks, stopping, and input that is hardly there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from tests.oracle.vad_model import SmallSilero
from whispyx._core.context import Context
from whispyx._core.lang import detect_language
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams, VadParams
from whispyx._core.results import SegmentData
from whispyx._core.run import FullRun, full
from whispyx._core.state import State
from whispyx.errors import Aborted, AudioError, LanguageError, ParamsError

RNG = np.random.default_rng(5)
SOUND = RNG.normal(0, 0.1, 16000 * 4).astype(np.float32)
LONG = RNG.normal(0, 0.1, 16000 * 70).astype(np.float32)


def context_of(n_vocab: int) -> Context:
    return pair(TinyModel(n_vocab=n_vocab)).context(True)


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    context = context_of(51865)
    yield context
    context.close()


@pytest.fixture
def state(ctx: Context) -> Iterator[State]:
    with State(ctx) as state:
        yield state


def params(**changes: object) -> FullParams:
    return FullParams(**{"n_threads": 1, "temperature_inc": 0.0, **changes})


def test_phases_come_in_their_order(ctx: Context, state: State) -> None:
    run = FullRun(ctx, state, params(), SOUND)
    seen = [run.phase]
    while run.phase != "DONE":
        seen.append(run.step())
    assert seen[:6] == ["START", "MEL", "LANGUAGE", "SEEK", "ENCODE", "ATTEMPT"]
    assert seen[6] == "PROMPT"
    steps = [phase for phase in seen if phase == "STEP"]
    assert steps
    assert seen[-2:] == ["SEEK", "DONE"]
    after = seen[seen.index("RANK") :]
    assert after[:3] == ["RANK", "EMIT", "ADVANCE"]


def test_stepping_through_equals_running(ctx: Context, state: State) -> None:
    run = FullRun(ctx, state, params(), SOUND)
    while run.step() != "DONE":
        pass
    assert run.result().segments == full(ctx, state, params(), SOUND).segments


@pytest.mark.parametrize("n", [0, 1, 2, 79, 80, 100, 159, 160, 161, 199, 200, 201, 399, 400, 401, 1599])
@pytest.mark.parametrize("language", ["en", None])
def test_less_than_a_tenth_of_a_second_gives_no_segments(
    ctx: Context, state: State, n: int, language: str | None
) -> None:
    result = full(ctx, state, params(language=language), SOUND[:n])
    assert result.segments == ()
    assert result.n_samples == n
    assert result.language is None


@pytest.mark.parametrize("n", [2080, 8000, 15839, 15840, 16000])
def test_short_audio_is_decoded(ctx: Context, state: State, n: int) -> None:
    assert full(ctx, state, params(), SOUND[:n]).timings.n_encode >= 1


def test_empty_audio_after_a_run_gives_nothing_old(ctx: Context, state: State) -> None:
    first = full(ctx, state, params(language=None), SOUND)
    assert first.language is not None
    empty = full(ctx, state, params(language=None), SOUND[:0])
    assert (empty.segments, empty.language, empty.language_probability) == ((), None, None)
    assert full(ctx, state, params(language=None), SOUND).segments == first.segments


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused_with_their_place(ctx: Context, state: State, bad: float) -> None:
    broken = SOUND.copy()
    broken[1234] = bad
    with pytest.raises(AudioError, match="sample 1234"):
        full(ctx, state, params(), broken)
    assert full(ctx, state, params(), SOUND).timings.n_encode >= 1


@pytest.mark.parametrize("bad", [SOUND.astype(np.float64), SOUND.reshape(2, -1), SOUND.astype(np.int16)])
def test_only_one_dimension_of_float32_is_heard(ctx: Context, state: State, bad: object) -> None:
    with pytest.raises(AudioError, match="float32"):
        full(ctx, state, params(), bad)  # type: ignore[arg-type]


def test_segments_are_reported_once_and_in_order(ctx: Context, state: State) -> None:
    reported: list[SegmentData] = []
    result = full(ctx, state, params(new_segment_callback=reported.extend), LONG)
    assert len(result.segments) > 1
    assert tuple(reported) == result.segments


def test_progress_rises_to_100(ctx: Context, state: State) -> None:
    seen: list[int] = []
    full(ctx, state, params(progress_callback=seen.append), LONG)
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 100)


@pytest.mark.parametrize(
    "name", ["progress_callback", "new_segment_callback", "encoder_begin_callback", "abort_callback"]
)
def test_an_exception_in_a_callback_reaches_the_caller(ctx: Context, state: State, name: str) -> None:
    class Mine(Exception):
        pass

    def fail(*_: object) -> bool:
        raise Mine(name)

    with pytest.raises(Mine, match=name) as caught:
        full(ctx, state, params(**{name: fail}), LONG)
    assert any(entry.name == "fail" for entry in caught.traceback)
    assert full(ctx, state, params(), SOUND).timings.n_encode >= 1


def test_encoder_begin_can_end_the_run_early(ctx: Context, state: State) -> None:
    answers = iter([True, False])
    result = full(ctx, state, params(encoder_begin_callback=lambda: next(answers)), LONG)
    assert result.timings.n_encode == 1


def test_abort_callback_stops_and_hands_over_what_there_is(ctx: Context, state: State) -> None:
    reported: list[SegmentData] = []
    stop = threading.Event()

    def new(segments: list[SegmentData]) -> None:
        reported.extend(segments)
        if len(reported) >= 2:
            stop.set()

    with pytest.raises(Aborted) as caught:
        full(ctx, state, params(new_segment_callback=new, abort_callback=stop.is_set), np.tile(LONG, 8))
    assert caught.value.partial.segments == tuple(reported)
    assert caught.value.code in (-6, -8, -9)


def test_the_shortest_job_asks_whether_it_may_go_on(ctx: Context, state: State) -> None:
    with pytest.raises(Aborted) as caught:
        full(ctx, state, params(abort_callback=lambda: True), SOUND[:4000])
    assert caught.value.code == -6
    assert caught.value.partial.timings.n_encode == 0


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("n_samples", [32257, 33000, 48000])
def test_nothing_ends_beyond_a_recording_whose_speech_ends_with_a_window_beyond_it(
    ctx: Context, state: State, tmp_path: Path, parts: int, n_samples: int
) -> None:
    path = tmp_path / "vad.bin"
    path.write_bytes(SmallSilero().to_bytes())
    settings = params(
        vad=True, vad_model_path=str(path), vad_params=VadParams(threshold=0.0), token_timestamps=True,
        no_timestamps=True,
    )  # fmt: skip
    result = full_parallel(ctx, state, settings, SOUND[:n_samples], parts)
    end = -(-n_samples // 160)
    assert result.vad_segments[-1][1] > end, "without a region beyond the end this shows nothing"
    assert end - 2 <= result.segments[-1].t1 <= end
    assert all(token.t1 <= end for segment in result.segments for token in segment.tokens)
    assert all(window.t1 <= end for window in result.windows)


def test_abort_from_another_thread(ctx: Context, state: State) -> None:
    threads: list[threading.Thread] = []

    def begin(percent: int) -> None:
        if not threads:
            threads.append(threading.Thread(target=state.request_abort))
            threads[0].start()

    with pytest.raises(Aborted):
        full(ctx, state, params(progress_callback=begin), np.tile(LONG, 40))
    threads[0].join()
    assert full(ctx, state, params(), SOUND).timings.n_encode >= 1


def test_a_later_run_does_not_remember_the_text_of_an_earlier_one(ctx: Context, state: State) -> None:
    alone = full(ctx, state, params(), SOUND).segments
    full(ctx, state, params(initial_prompt="Something else."), LONG)
    assert full(ctx, state, params(), SOUND).segments == alone


def test_keeping_context_puts_earlier_text_into_the_prompt(ctx: Context, state: State) -> None:
    full(ctx, state, params(), SOUND)
    run = FullRun(ctx, state, params(no_context=False), SOUND)
    while run.step() != "STEP":
        pass
    used = state.kv_cells[1]
    fresh = FullRun(ctx, state, params(), SOUND)
    while fresh.step() != "STEP":
        pass
    assert used > state.kv_cells[1]


def test_same_seed_same_text_another_seed_another_text(ctx: Context, state: State) -> None:
    def text(seed: int) -> list[bytes]:
        result = full(ctx, state, params(temperature=1.0, best_of=2, seed=seed), SOUND)
        return [segment.text for segment in result.segments]

    first = text(7)
    assert text(7) == first
    assert any(text(seed) != first for seed in (8, 9, 10))


def test_language_detection_gives_probabilities_of_the_models_languages(ctx: Context, state: State) -> None:
    found, probabilities = detect_language(ctx, state, SOUND, 1)
    assert probabilities.shape == (99,)
    assert probabilities.dtype == np.float32
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-5)
    assert found == int(probabilities.argmax())
    result = full(ctx, state, params(language=None, detect_language=True), SOUND)
    assert result.segments == ()
    assert result.language_probability == pytest.approx(float(probabilities[found]))


def test_detection_does_not_encode_the_first_window_twice(ctx: Context, state: State) -> None:
    given = full(ctx, state, params(language="en"), SOUND).timings.n_encode
    assert full(ctx, state, params(language=None), SOUND).timings.n_encode == given


def test_english_only_model_detects_english_without_the_decoder() -> None:
    with context_of(51864) as ctx, State(ctx) as state:
        found, probabilities = detect_language(ctx, state, SOUND, 1)
        assert (found, float(probabilities[0])) == (0, 1.0)
        assert full(ctx, state, params(language=None), SOUND).language == "en"


def test_a_language_the_model_lacks_is_refused(ctx: Context, state: State) -> None:
    with pytest.raises(LanguageError):
        full(ctx, state, params(language="yue"), SOUND)
    with pytest.raises(LanguageError, match="klingon"):
        params(language="klingon")


def test_audio_ctx_beyond_the_model_has_its_status_code(ctx: Context, state: State) -> None:
    with pytest.raises(ParamsError) as caught:
        full(ctx, state, params(audio_ctx=ctx.hparams.n_audio_ctx + 1), SOUND)
    assert (caught.value.code, caught.value.where) == (-5, "whisper_full")


def test_duration_past_the_end_is_the_end(ctx: Context, state: State) -> None:
    assert full(ctx, state, params(duration_ms=10**8), SOUND).segments == full(ctx, state, params(), SOUND).segments


def test_temperature_above_one_decodes_once(ctx: Context, state: State) -> None:
    result = full(ctx, state, FullParams(n_threads=1, temperature=1.5, temperature_inc=0.2, best_of=1), SOUND)
    assert result.timings.n_sample > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_threads", 0),
        ("n_threads", -1),
        ("n_threads", True),
        ("n_threads", 1.5),
        ("best_of", 0),
        ("best_of", 9),
        ("temperature", float("nan")),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("offset_ms", -1),
        ("no_timestamps", 1),
        ("initial_prompt", b"bytes"),
        ("prompt_tokens", [-1]),
        ("language", 3),
        ("abort_callback", "no"),
    ],
)
def test_parameters_are_checked_when_they_are_set(name: str, value: object) -> None:
    target = params()
    before = target.as_dict()
    with pytest.raises(ParamsError, match=name):
        setattr(target, name, value)
    assert target.as_dict() == before


def test_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(TypeError, match="beam_width"):
        FullParams(beam_width=3)
