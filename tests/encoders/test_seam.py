"""The seam for encoders from outside, with Python callables: what they get, what they may return, who uses them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import whispyx
from tests.core.tiny import pair, recipe_of
from tests.oracle import mel as oracle_mel
from tests.oracle.compare import assert_close, nmse_tolerance
from tests.oracle.tiny_model import speechlike
from whispyx._core import steps
from whispyx._core.context import Context
from whispyx._core.lang import detect_language
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx._core.state import State
from whispyx.errors import Aborted, ComputeError, ParamsError, StateError

RECIPE = recipe_of("f32", seed=5)
MULTILINGUAL = recipe_of("f32", seed=6, n_vocab=51865)
SAMPLES = speechlike(8, 5)
WIDTH = RECIPE.n_state

Encoder = Callable[[np.ndarray], np.ndarray]


def oracle(mel: np.ndarray) -> np.ndarray:
    """The encoder of the oracle's network."""
    return np.asarray(pair(RECIPE).net.encode(mel).output.astype(np.float32))


class Counted:
    """An encoder that notes what it was given."""

    def __init__(self, encode: Encoder = oracle) -> None:
        self.seen: list[np.ndarray] = []
        self.encode = encode

    def __call__(self, mel: np.ndarray) -> np.ndarray:
        self.seen.append(mel)
        return self.encode(mel)


@pytest.fixture(scope="module")
def ctx() -> Iterator[Any]:
    with pair(RECIPE).context(True) as ctx:
        yield ctx


@pytest.fixture
def state(ctx: Any) -> Iterator[Any]:
    with ctx.new_state() as state:
        state.pcm_to_mel(SAMPLES)
        yield state


def params(**fields: Any) -> FullParams:
    return FullParams(**{"n_threads": 1, "temperature_inc": 0.0, **fields})


def ids(result: Any) -> list[tuple[int, int, list[int]]]:
    return [(s.t0, s.t1, [t.id for t in s.tokens]) for s in result.segments]


@pytest.mark.parametrize(("offset", "n_ctx"), [(0, None), (100, 60), (750, 31)])
def test_an_encoder_gets_the_window_and_its_output_reaches_the_decoder(
    state: State, offset: int, n_ctx: int | None
) -> None:
    both, encoder = pair(RECIPE), Counted()
    state.set_encoder(encoder)
    assert state.external_encoder is encoder
    state.encode(offset, audio_ctx=n_ctx or 0)
    mel = oracle_mel.log_mel(SAMPLES, both.model.filters, np.float64)
    window = oracle_mel.window_of(mel, offset, n_ctx or RECIPE.n_audio_ctx)
    (seen,) = encoder.seen
    assert seen.dtype == np.float32 and seen.shape == window.shape and np.abs(seen - window).max() < 1e-3
    truth = both.net.encode(window)
    tolerance = nmse_tolerance("f32")
    assert np.array_equal(state.tensor("encoder"), oracle(seen))
    for layer in range(RECIPE.n_text_layer):
        assert_close("cross keys", state.tensor(f"cross_k.{layer}"), truth.cross_k[layer], tolerance)
        assert_close("cross values", state.tensor(f"cross_v.{layer}"), truth.cross_v[layer], tolerance)


def test_without_it_the_model_encodes_again(state: State) -> None:
    state.encode()
    expected = state.tensor("encoder")
    state.set_encoder(lambda mel: np.zeros((mel.shape[1] // 2, WIDTH), np.float32))
    state.encode()
    assert not state.tensor("encoder").any()
    state.set_encoder(None)
    assert state.external_encoder is None
    state.encode()
    assert np.array_equal(state.tensor("encoder"), expected)


@pytest.mark.parametrize("fields", [{}, {"strategy": "beam_search", "beam_size": 3}])
def test_whole_runs_use_it_and_say_what_they_say_without_it(ctx: Any, state: State, fields: dict[str, Any]) -> None:
    expected = full(ctx, state, params(**fields), SAMPLES)
    encoder = Counted()
    state.set_encoder(encoder)
    found = full(ctx, state, params(**fields), SAMPLES)
    assert ids(found) == ids(expected) and ids(found)
    assert len(encoder.seen) == found.timings.n_encode == expected.timings.n_encode


def test_every_part_of_a_divided_run_has_the_encoder_of_the_first(ctx: Any, state: State) -> None:
    expected = full_parallel(ctx, state, params(), SAMPLES, 2)
    threads = set()

    def encode(mel: np.ndarray) -> np.ndarray:
        threads.add(threading.get_ident())
        return oracle(mel)

    state.set_encoder(encode)
    found = full_parallel(ctx, state, params(), SAMPLES, 2)
    assert ids(found) == ids(expected) and len(threads) == 2


def test_language_detection_uses_it() -> None:
    net = pair(MULTILINGUAL).net
    encoder = Counted(lambda mel: net.encode(mel).output.astype(np.float32))
    with pair(MULTILINGUAL).context(True) as ctx, ctx.new_state() as state:
        language, probabilities = detect_language(ctx, state, SAMPLES)
        state.set_encoder(encoder)
        again, found = detect_language(ctx, state, SAMPLES)
    assert again == language and np.abs(found - probabilities).max() < 1e-3
    assert len(encoder.seen) == 1


def test_stages_go_on_from_its_output(state: State) -> None:
    state.encode()
    expected = steps.prefill(state, [50257, 50362, 100])
    state.set_encoder(oracle)
    state.encode()
    steps.seq_rm(state, 0)
    assert np.abs(steps.prefill(state, [50257, 50362, 100]) - expected).max() < 0.08  # caches are f16
    output = steps.encoder_output(state)
    steps.set_encoder_output(state, output)
    with pytest.raises(StateError, match="given from outside"):
        steps.encoder_output(state)


WRONG = {
    "nothing": None,
    "a list": [[0.0] * WIDTH],
    "one position too few": np.zeros((RECIPE.n_audio_ctx - 1, WIDTH), np.float32),
    "a batch": np.zeros((1, RECIPE.n_audio_ctx, WIDTH), np.float32),
    "another width": np.zeros((RECIPE.n_audio_ctx, WIDTH + 1), np.float32),
    "float64": np.zeros((RECIPE.n_audio_ctx, WIDTH)),
    "float16": np.zeros((RECIPE.n_audio_ctx, WIDTH), np.float16),
    "big endian": np.zeros((RECIPE.n_audio_ctx, WIDTH), ">f4"),
    "NaN": np.full((RECIPE.n_audio_ctx, WIDTH), np.nan, np.float32),
    "infinity": np.full((RECIPE.n_audio_ctx, WIDTH), -np.inf, np.float32),
}


@pytest.mark.parametrize("found", WRONG.values(), ids=WRONG)
def test_what_is_no_encoder_output_is_refused_and_the_state_stays_usable(state: State, found: Any) -> None:
    state.set_encoder(oracle)
    state.encode()

    def broken(mel: np.ndarray) -> Any:
        return found

    state.set_encoder(broken)
    with pytest.raises(ComputeError, match=r"broken.* returned"):
        state.encode()
    with pytest.raises(StateError, match="encode"):
        state.decode([50257])  # nothing of the older window is left to decode
    state.set_encoder(oracle)
    state.encode()
    state.decode([50257])


def test_an_output_in_another_memory_order_is_the_same_output(state: State) -> None:
    state.set_encoder(lambda mel: np.asfortranarray(oracle(mel)))
    state.encode()
    turned = state.tensor("cross_k.0")
    state.set_encoder(oracle)
    state.encode()
    assert np.array_equal(state.tensor("cross_k.0"), turned)


def test_exceptions_of_an_encoder_reach_the_caller(ctx: Any, state: State) -> None:
    def fails(mel: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("my own")

    state.set_encoder(fails)
    with pytest.raises(ZeroDivisionError, match="my own") as caught:
        full(ctx, state, params(), SAMPLES)
    assert caught.traceback[-1].name == "fails"
    state.set_encoder(None)
    assert full(ctx, state, params(), SAMPLES).segments


def test_an_encoder_can_be_neither_changed_nor_run_twice_from_within(ctx: Any, state: State) -> None:
    wrong: list[type[BaseException]] = []

    def meddles(mel: np.ndarray) -> np.ndarray:
        for attempt in (lambda: state.set_encoder(None), state.encode):
            try:
                attempt()
            except StateError as error:
                wrong.append(type(error))
        return oracle(mel)

    state.set_encoder(meddles)
    state.encode()
    assert wrong == [StateError, StateError]


def test_a_job_is_stopped_behind_the_encoder_at_the_latest(ctx: Any, state: State) -> None:
    began = threading.Event()

    def encode(mel: np.ndarray) -> np.ndarray:
        began.set()
        return oracle(mel)

    state.set_encoder(encode)
    with pytest.raises(Aborted) as caught:
        full(ctx, state, params(abort_callback=began.is_set), SAMPLES)
    assert caught.value.code == -6 and not caught.value.partial.segments
    state.set_encoder(None)
    assert full(ctx, state, params(), SAMPLES).segments


@pytest.mark.parametrize("encoder", [3, "openvino", object()])
def test_what_cannot_be_called_is_no_encoder(state: State, encoder: Any) -> None:
    with pytest.raises(ParamsError, match="callable"):
        state.set_encoder(encoder)
    state.encode()


class Sessions:
    """An encoder that opens sessions, as one on a device does."""

    name = "my device"

    def __init__(self, fits: bool = True) -> None:
        self.fits = fits
        self.open = 0
        self.runs: list[int] = []
        self.sizes: tuple[int, ...] = ()

    def whispyx_check(self, *sizes: int) -> None:
        self.sizes = sizes
        if not self.fits:
            raise ParamsError("another model")

    def whispyx_session(self, *sizes: int) -> Any:
        assert sizes == self.sizes
        self.open += 1
        return self.Session(self)

    class Session:
        def __init__(self, owner: Sessions) -> None:
            self.owner = owner

        def run(self, mel: np.ndarray, n_threads: int, stop: Callable[[], bool]) -> np.ndarray | None:
            self.owner.runs.append(n_threads)
            return None if stop() else oracle(mel)

        def close(self) -> None:
            self.owner.open -= 1


def test_each_state_has_a_session_that_ends_with_it(ctx: Any) -> None:
    encoder = Sessions()
    with ctx.new_state() as one, ctx.new_state() as two:
        for state in (one, two):
            state.set_encoder(encoder)
            state.pcm_to_mel(SAMPLES)
        assert encoder.sizes == (RECIPE.n_mels, RECIPE.n_audio_ctx, RECIPE.n_state)
        one.encode(n_threads=2)
        two.encode(n_threads=1)
        assert encoder.open == 2 and encoder.runs == [2, 1]
        one.set_encoder(None)
        assert encoder.open == 1
        with pytest.raises(Aborted):
            full(ctx, two, params(abort_callback=lambda: len(encoder.runs) > 1), SAMPLES)
    assert encoder.open == 0


def test_an_encoder_that_does_not_fit_leaves_the_old_one_in_place(ctx: Any, state: State) -> None:
    state.set_encoder(oracle)
    with pytest.raises(ParamsError, match="another model"):
        state.set_encoder(Sessions(fits=False))
    assert state.external_encoder is oracle
    state.encode()


class Odd:
    """An encoder with one thing that is not as it must be."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


NO_SESSIONS: list[Any] = [None, 5, Odd(run=print), Odd(run=5, close=print), Odd(close=print)]


@pytest.mark.parametrize(
    "encoder",
    [
        *(5, "x", Odd(), Odd(whispyx_check=print), Odd(whispyx_session=5), Odd(whispyx_check=5, whispyx_session=print)),
        *(Odd(whispyx_session=lambda *sizes, session=session: session) for session in NO_SESSIONS),
    ],
)
def test_objects_that_are_no_encoders_are_refused(encoder: Any, ctx: Any, state: State) -> None:
    state.set_encoder(oracle)
    with pytest.raises(ParamsError, match=r"encoder"):
        state.set_encoder(encoder)
    assert state.external_encoder is oracle
    state.encode()
    if not isinstance(encoder, str):
        with pytest.raises(ParamsError, match=r"encoder"):
            whispyx.Model(pair(RECIPE).path, encoder=encoder).transcribe(SAMPLES, "en")


def test_a_plan_that_is_no_method_is_refused() -> None:
    encoder = Sessions()
    encoder.whispyx_plan = 5  # type: ignore[attr-defined]
    with pytest.raises(ParamsError, match="whispyx_plan"):
        whispyx.Model(pair(RECIPE).path, encoder=encoder)


# ---- models without an encoder of their own


def test_a_model_with_an_encoder_from_outside_leaves_its_own_in_the_file(ctx: Any) -> None:
    path = str(pair(RECIPE).path)
    told: list[tuple[int, int]] = []
    with Context.load(path, encoder=oracle, progress=lambda *at: told.append(at)) as bare:
        assert bare.encoder is oracle
        own = sum(tensor.nbytes for name, tensor in pair(RECIPE).model.tensors.items() if name.startswith("encoder."))
        assert 0 <= ctx.weight_bytes - bare.weight_bytes - own < 64 * len(pair(RECIPE).model.tensors)  # alignment
        assert told[-1][0] == told[-1][1]
        with ctx.new_state() as state, bare.new_state() as without:
            assert without.compute_bytes < state.compute_bytes
            expected = full(ctx, state, params(), SAMPLES)
            assert ids(full(bare, without, params(), SAMPLES)) == ids(expected)
            assert ids(full_parallel(bare, without, params(), SAMPLES, 2)) == ids(
                full_parallel(ctx, state, params(), SAMPLES, 2)
            )


def test_a_model_without_an_encoder_of_its_own_keeps_the_one_it_was_given() -> None:
    with Context.load(str(pair(RECIPE).path), encoder=oracle) as bare, bare.new_state() as state:
        with pytest.raises(StateError, match="without its encoder"):
            state.set_encoder(None)
        state.pcm_to_mel(SAMPLES)
        state.encode()
        for name in ("conv", "enc.0"):
            with pytest.raises((StateError, ParamsError)):
                state.tensor(name)


def test_an_encoder_that_does_not_fit_is_refused_before_the_weights_are_read() -> None:
    told: list[int] = []
    for encoder in (Sessions(fits=False), "openvino"):
        with pytest.raises(ParamsError):
            Context.load(str(pair(RECIPE).path), encoder=encoder, progress=lambda done, _: told.append(done))
    assert not told
