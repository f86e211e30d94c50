"""Speech probabilities against the NumPy network and whisper.cpp; how a voice activity model behaves as an object."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

import whispyx.plugins
from tests import data
from tests.oracle.vad import Settings, Silero, SileroFile
from tests.oracle.vad import regions as oracle_regions
from tests.oracle.vad_model import SmallSilero
from whispyx._core.handles import live
from whispyx._core.params import VadParams, usable_cores
from whispyx._core.vad.detect import VadModel
from whispyx._core.vad.regions import regions, to_cs
from whispyx.errors import Aborted, AudioError, ComputeError, StateError

Samples = npt.NDArray[np.float32]

# float32 against float64, and what of it crosses a rounding to 16 bits. Up to 2e-4 was seen.
TOLERANCE = 5e-4
# Two engines that round in the same places and sum in another order. Up to 3e-4 was seen.
TOLERANCE_PEER = 1e-3
# One engine, other groups of windows: sums of float32.
TOLERANCE_SELF = 1e-5


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    whispyx.plugins.load()


@pytest.fixture(scope="module")
def jfk() -> Samples:
    return np.asarray(soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")[0])


@pytest.fixture(scope="module")
def lecture() -> Samples:
    return np.asarray(soundfile.read(data.or_skip(data.lecture_wav), dtype="float32")[0])


@pytest.fixture(scope="module")
def silero() -> Path:
    return data.or_skip(data.silero_ggml)


@pytest.fixture
def small() -> VadModel:
    return VadModel.load(SmallSilero().to_bytes())


def noise(n: int, seed: int = 3) -> Samples:
    """Sound that changes in loudness and colour, so that probabilities move."""
    rng = np.random.default_rng(seed)
    x = np.convolve(rng.standard_normal(n + 20), np.hanning(12), mode="same")[:n]
    return np.asarray(0.3 * x * np.sin(np.arange(n) / 3000.0) ** 2, np.float32)


def worst(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max())


# The network


@pytest.mark.parametrize("carry", [False, True], ids=["mirrored", "carried"])
@pytest.mark.parametrize(
    "recipe",
    [
        SmallSilero(),
        SmallSilero((20, 7, 9, 13), 11, seed=2),  # nothing is a multiple of what kernels like
        SmallSilero((1, 1, 1, 1), 1, seed=3),
        SmallSilero((128, 64, 64, 128), 128, seed=4),
    ],
    ids=["small", "odd", "ones", "real"],
)
def test_probabilities_of_random_networks_are_those_of_the_oracle(
    recipe: SmallSilero, carry: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(recipe.to_bytes())
    x = noise(512 * 280 + 77)  # more than one group of windows, and a part of one
    ours = VadModel.load(path, carry_context=carry).detect(x)
    oracle = Silero(SileroFile.read(path), carry)(x)
    print(f"\nlargest difference {worst(ours, oracle):.1e}, probabilities {oracle.min():.3f} to {oracle.max():.3f}")
    assert worst(ours, oracle) < TOLERANCE


@pytest.mark.parametrize("carry", [False, True], ids=["mirrored", "carried"])
def test_probabilities_of_speech_are_those_of_the_oracle(silero: Path, jfk: Samples, carry: bool) -> None:
    ours = VadModel.load(silero, carry_context=carry).detect(jfk)
    oracle = Silero(SileroFile.read(silero), carry)(jfk)
    print(f"\nlargest difference {worst(ours, oracle):.1e}")
    assert worst(ours, oracle) < TOLERANCE


def test_V4_a_window_sees_mirrored_samples_unless_the_context_is_carried() -> None:
    # Two recordings that differ before the second window only. The small network has no memory to carry: its LSTM
    # forgets (biases of -40 close the forget gate and take nothing from the state).
    recipe = SmallSilero()
    hidden = recipe.hidden
    bias = recipe.tensors()["_model.decoder.rnn.bias_ih"].copy()
    bias[hidden : 2 * hidden] = -40.0
    no_memory = {
        "_model.decoder.rnn.weight_hh": np.zeros((4 * hidden, hidden), np.float32),
        "_model.decoder.rnn.bias_ih": bias,
    }
    content = SmallSilero(changes=no_memory).to_bytes()
    x, y = noise(1024), noise(1024)
    y[448:512] = 0.5
    plain, carrying = VadModel.load(content), VadModel.load(content, carry_context=True)
    assert plain.detect(x)[1] == plain.detect(y)[1]
    assert abs(carrying.detect(x)[1] - carrying.detect(y)[1]) > TOLERANCE


GRID = [
    {},
    *(
        {
            "threshold": threshold,
            "min_speech_duration_ms": speech,
            "min_silence_duration_ms": silence,
            "speech_pad_ms": pad,
            "max_speech_duration_s": longest,
        }
        for threshold, speech, silence, pad, longest in itertools.product(
            (0.2, 0.5, 0.8), (0, 250, 700), (40, 100, 400), (0, 30, 150), (2.0, 5.0, 1e6)
        )
    ),
]


@pytest.fixture(scope="module")
def peer(
    whispercpp_python: Path, silero: Path, jfk: Samples, lecture: Samples, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Samples, Samples, list[list[tuple[int, int]]]]]:
    """By name: samples, whisper.cpp's probabilities, its regions for each set of GRID."""
    folder = tmp_path_factory.mktemp("vad")
    sounds = {
        "jfk": jfk,
        "lecture": lecture,
        "late": np.concatenate([np.zeros(80000, np.float32), jfk]),
        "noise": noise(50000),
        "one": np.array([0.5], np.float32),
        "quiet": np.zeros(20000, np.float32),
    }
    for name, samples in sounds.items():
        np.save(folder / f"samples-{name}.npy", samples)
    (folder / "grid.json").write_text(json.dumps(GRID))
    child = Path(__file__).with_name("vad_whispercpp_child.py")
    subprocess.run([str(whispercpp_python), str(child), str(silero), str(folder)], check=True, capture_output=True)
    out = {}
    for name, samples in sounds.items():
        answer = json.loads((folder / f"out-{name}.json").read_text())
        found = [[(t0, t1) for t0, t1 in one] for one in answer["regions"]]
        out[name] = samples, np.array(answer["probs"], np.float32), found
    return out


def test_probabilities_are_those_of_whispercpp(peer: dict[str, Any], silero: Path) -> None:
    model = VadModel.load(silero)
    for name, (samples, theirs, _) in peer.items():
        difference = worst(model.detect(samples), theirs)
        print(f"\n{name}: largest difference {difference:.1e}")
        assert difference < TOLERANCE_PEER, name


def test_regions_are_those_of_whispercpp_with_the_default_parameters(peer: dict[str, Any], silero: Path) -> None:
    model = VadModel.load(silero)
    for name, (samples, _, theirs) in peer.items():
        assert to_cs(regions(model.detect(samples), VadParams())) == theirs[0], name


def test_regions_of_the_same_probabilities_are_those_of_whispercpp(peer: dict[str, Any]) -> None:
    for name, (_, probs, theirs) in peer.items():
        for changes, expected in zip(GRID, theirs, strict=True):
            assert to_cs(regions(probs, VadParams(**changes))) == expected, (name, changes)


def test_speech_after_five_seconds_of_silence_begins_there(silero: Path, jfk: Samples) -> None:
    probs = VadModel.load(silero).detect(np.concatenate([np.zeros(80000, np.float32), jfk]))
    first = to_cs(regions(probs, VadParams()))[0]
    assert 525 <= first[0] <= 535  # whisper.cpp: 531


def test_regions_of_speech_are_those_of_the_oracle(silero: Path, lecture: Samples) -> None:
    probs = VadModel.load(silero).detect(lecture)
    assert regions(probs, VadParams()) == oracle_regions(probs, Settings())


# Input


def test_no_samples_have_no_probabilities(small: VadModel) -> None:
    small.detect(noise(5000))
    assert small.detect(np.empty(0, np.float32)).shape == (0,)
    assert small.probs.shape == (0,)
    assert regions(small.probs, VadParams()) == []


@pytest.mark.parametrize(("n", "n_windows"), [(1, 1), (511, 1), (512, 1), (513, 2), (131072, 256), (131073, 257)])
def test_a_part_of_a_window_counts_as_one(small: VadModel, n: int, n_windows: int) -> None:
    assert small.detect(noise(n)).shape == (n_windows,)
    assert small.n_window == 512


def test_the_last_window_is_filled_up_with_silence(small: VadModel) -> None:
    x = noise(700)
    full = np.concatenate([x, np.zeros(324, np.float32)])
    np.testing.assert_array_equal(small.detect(x), small.detect(full))


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(600),
        np.zeros(600, np.int16),
        np.zeros((2, 600), np.float32),
        np.array([0.0, np.nan], np.float32),
        np.array([0.0, np.inf], np.float32),
        [0.0, 0.1],
        "sound",
        None,
    ],
)
def test_samples_must_be_a_finite_float32_array(small: VadModel, bad: Any) -> None:
    before = small.detect(noise(2000))
    for call in (small.detect, small.detect_no_reset):
        with pytest.raises(AudioError):
            call(bad)
    np.testing.assert_array_equal(small.probs, before)


def test_samples_with_gaps_between_them_are_read_in_order(small: VadModel) -> None:
    x = noise(4000)
    np.testing.assert_array_equal(small.detect(x[::2]), small.detect(x[::2].copy()))
    np.testing.assert_array_equal(small.detect(x[::-1]), small.detect(x[::-1].copy()))


def test_huge_samples_are_computed_with(small: VadModel) -> None:
    # Beyond what 16 bits hold, so that frames become infinite inside: an error, or numbers, but never NaN.
    try:
        assert np.isfinite(small.detect(np.full(2000, 3e38, np.float32))).all()
    except ComputeError:
        assert small.probs.size == 0


# Memory of the model


def test_a_second_recording_is_heard_as_if_it_were_the_first(small: VadModel) -> None:
    x = noise(30000)
    first = small.detect(x)
    small.detect(noise(9000, seed=8))
    np.testing.assert_array_equal(small.detect(x), first)


@pytest.mark.parametrize("carry", [False, True], ids=["mirrored", "carried"])
@pytest.mark.parametrize("step", [1, 3, 50])
def test_a_stream_in_pieces_gives_what_the_whole_gives(step: int, carry: bool) -> None:
    model = VadModel.load(SmallSilero((128, 64, 64, 128), 128).to_bytes(), carry_context=carry)
    x = noise(512 * 300 + 100)
    whole = model.detect(x)
    model.reset()
    pieces = [model.detect_no_reset(x[at : at + 512 * step]) for at in range(0, x.size, 512 * step)]
    assert worst(np.concatenate(pieces), whole) < TOLERANCE_SELF


def test_reset_forgets_the_sound_and_keeps_the_probabilities(small: VadModel) -> None:
    x = noise(5000)
    first = small.detect(x)
    assert small.state.any()
    small.reset()
    assert small.state.shape == (2, 16) and not small.state.any()
    np.testing.assert_array_equal(small.probs, first)
    np.testing.assert_array_equal(small.detect_no_reset(x), first)
    assert worst(small.detect_no_reset(x), first) > 0


def test_probabilities_are_read_only_not_copied_and_outlive_the_next_job(small: VadModel) -> None:
    first = small.detect(noise(5000))
    assert first.dtype == np.float32 and not first.flags.writeable
    assert small.probs is first
    kept = first.copy()
    small.detect(noise(5000, seed=9))
    np.testing.assert_array_equal(first, kept)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1.0


# Failure


def broken() -> bytes:
    """A network whose values overflow: infinity less infinity in the LSTM's gates."""
    recipe = SmallSilero()
    weight = np.full((4 * recipe.hidden, recipe.widths[3]), 3e38, np.float32)
    weight[:, ::2] *= -1
    bias = np.full(recipe.widths[3], 100.0, np.float32)
    return SmallSilero(
        changes={"_model.decoder.rnn.weight_ih": weight, "_model.encoder.3.reparam_conv.bias": bias}
    ).to_bytes()


def test_V9_a_failing_computation_is_an_error_and_leaves_no_probabilities() -> None:
    model = VadModel.load(broken())
    with pytest.raises(ComputeError, match="no numbers"):
        model.detect(noise(5000))
    assert model.probs.size == 0
    assert not model.state.any()


def test_V9_a_job_that_is_stopped_leaves_no_probabilities(small: VadModel) -> None:
    whole = small.detect(noise(5000))
    calls = []

    def stop() -> bool:
        calls.append(threading.current_thread())
        return True

    with pytest.raises(Aborted):
        small.detect(np.tile(noise(160000), 60), abort_callback=stop)
    assert calls[0] is threading.current_thread()
    assert small.probs.size == 0
    np.testing.assert_array_equal(small.detect(noise(5000)), whole)


def test_an_exception_in_the_abort_callback_reaches_the_caller(small: VadModel) -> None:
    def fail() -> bool:
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        small.detect(np.tile(noise(160000), 60), abort_callback=fail)
    assert small.probs.size == 0


def test_a_job_can_be_stopped_from_another_thread() -> None:
    model = VadModel.load(SmallSilero((128, 64, 64, 128), 128).to_bytes(), n_threads=1)
    x, done = np.tile(noise(160000), 60), threading.Event()

    def ask() -> None:
        while not done.wait(0.02):  # a request before the job has begun counts for nothing
            model.request_abort()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        with pytest.raises(Aborted):
            model.detect(x)
    finally:
        done.set()
        asking.join()


def test_a_model_in_use_or_closed_says_so(small: VadModel) -> None:
    seen: list[Exception] = []

    def enter_again() -> bool:
        for call in (lambda: small.detect(noise(600)), small.reset, small.close):
            try:
                call()
            except StateError as error:
                seen.append(error)
        return False

    x = np.tile(noise(160000), 30)
    while len(seen) < 3:
        small.detect(x, abort_callback=enter_again)
    assert all("in use" in str(error) for error in seen[:3])
    small.close()
    small.close()
    for call in (lambda: small.detect(noise(600)), small.reset):
        with pytest.raises(StateError, match="closed"):
            call()


def test_a_model_that_was_not_loaded_says_so() -> None:
    model = VadModel()
    for call in (lambda: model.detect(noise(600)), lambda: model.probs, model.reset, model.request_abort):
        with pytest.raises(StateError, match="never made"):
            call()
    model.close()


def test_a_model_from_before_a_fork_says_so(small: VadModel) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            small.detect(noise(600))
            os.write(writing, b"computed")
        except StateError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    assert b"forked" in os.read(reading, 1000)
    os.close(reading)


def test_closing_gives_everything_back() -> None:
    before = live()
    with VadModel.load(SmallSilero().to_bytes()) as model:
        kept = model.detect(noise(5000))
        assert live() != before
    assert live() == before
    assert kept.size == 10
    VadModel.load(SmallSilero().to_bytes())
    assert live() == before  # dropped without being closed


# Threads


def test_V3_the_number_of_threads_is_that_asked_for_and_changes_nothing() -> None:
    content, x = SmallSilero((128, 64, 64, 128), 128).to_bytes(), noise(160000)
    expected = VadModel.load(content, n_threads=1).detect(x)
    for n_threads in (1, 2, 4):
        model = VadModel.load(content, n_threads=n_threads)
        assert model.threads == min(n_threads, usable_cores())
        np.testing.assert_array_equal(model.detect(x), expected)


def test_models_compute_side_by_side_without_the_gil() -> None:
    content = SmallSilero((128, 64, 64, 128), 128).to_bytes()
    sounds = [np.tile(noise(160000, seed), 10) for seed in range(4)]
    expected = [VadModel.load(content, n_threads=1).detect(x) for x in sounds]
    models = [VadModel.load(content, n_threads=1) for _ in sounds]
    found: list[Samples] = [np.empty(0, np.float32)] * len(sounds)
    ticks, done = [0], threading.Event()

    def beat() -> None:
        while not done.wait(0.001):
            ticks[0] += 1

    def work(i: int) -> None:
        found[i] = models[i].detect(sounds[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sounds))]
    heart = threading.Thread(target=beat)
    heart.start()
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begun
    done.set()
    heart.join()
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    print(f"\n{ticks[0]} ticks in {spent:.2f} s")
    assert ticks[0] > 20  # a thread that held the GIL throughout would leave next to none
