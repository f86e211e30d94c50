"""Log mel energies of the kernels, against numpy's Fourier transform in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.sets import each_library, pointer

FFT, HOP, BINS = 400, 160, 201
# log10 of energies summed in f32: relative errors of about 1e-6 of an energy, and one unit of a logarithm near -10.
LOG_ERROR = 4e-6


def filters(n_mels: int) -> np.ndarray:
    """Return overlapping triangles, their sizes like those of Whisper's filters."""
    centres = np.linspace(0, 1, n_mels + 2) ** 1.7 * (BINS - 1)
    bins = np.arange(BINS)
    rows = [
        np.maximum(0, np.minimum((bins - a) / max(b - a, 1), (c - bins) / max(c - b, 1)))
        for a, b, c in zip(centres, centres[1:], centres[2:], strict=False)
    ]
    return (np.array(rows) * 0.02).astype(np.float32)


WINDOW = (0.5 * (1 - np.cos(2 * np.pi * np.arange(FFT) / FFT))).astype(np.float32)


def expected(samples: np.ndarray, first: int, last: int, bank: np.ndarray) -> np.ndarray:
    frames = np.stack([samples[HOP * i : HOP * i + FFT] for i in range(first, last)]).astype(np.float64)
    power = np.abs(np.fft.rfft(frames * WINDOW.astype(np.float64))) ** 2
    return np.log10(np.maximum(power @ bank.astype(np.float64).T, 1e-10)).T


def energies(library, samples: np.ndarray, first: int, last: int, bank: np.ndarray) -> np.ndarray:
    n_mels = len(bank)
    out = np.full(n_mels * (last - first) + 64, np.nan, dtype=np.float32)
    library.table.mel(
        pointer(samples, "float *"), first, last, pointer(WINDOW, "float *"), pointer(bank, "float *"), n_mels,
        pointer(out, "float *"),
    )  # fmt: skip
    assert np.isnan(out[n_mels * (last - first) :]).all()
    return out[: n_mels * (last - first)].reshape(n_mels, last - first)


def noise(n_frames: int, size: float = 0.3) -> np.ndarray:
    """Return exactly as many samples as the frames cover."""
    random = np.random.default_rng(n_frames)
    return (size * random.standard_normal(HOP * (n_frames - 1) + FFT)).astype(np.float32)


@each_library
@pytest.mark.parametrize("n_mels", [1, 80, 128, 300])
@pytest.mark.parametrize("span", [(0, 1), (0, 7), (3, 19), (0, 16), (5, 38)])
def test_energies_are_those_of_the_transform(library, n_mels, span) -> None:
    first, last = span
    samples, bank = noise(last), filters(n_mels)
    found = energies(library, samples, first, last, bank)
    true = expected(samples, first, last, bank)
    # An amplitude carries the rounding of the frame's usual ones, which counts for more where chance made it small.
    small = np.sqrt(10 ** (np.median(true, axis=1, keepdims=True) - true))
    error = (np.abs(found - true) / np.maximum(1, small)).max()
    assert error < LOG_ERROR, error


@each_library
def test_silence_is_the_least_energy(library) -> None:
    found = energies(library, np.zeros(HOP * 20 + FFT, dtype=np.float32), 0, 21, filters(80))
    np.testing.assert_allclose(found, -10.0, rtol=1e-6)


@each_library
def test_a_tone_stands_in_the_bands_that_hold_it(library) -> None:
    samples = np.sin(2 * np.pi * 1000 / 16000 * np.arange(HOP * 30 + FFT)).astype(np.float32)  # bin 25
    bank = filters(80)
    found = energies(library, samples, 0, 31, bank)
    assert (found.argmax(axis=0) == bank[:, 25].argmax()).all()


@each_library
def test_frames_do_not_depend_on_those_beside_them(library) -> None:
    samples, bank = noise(40), filters(80)
    together = energies(library, samples, 0, 40, bank)
    for first, last in [(0, 1), (17, 18), (13, 33)]:
        np.testing.assert_array_equal(energies(library, samples, first, last, bank), together[:, first:last])


@each_library
def test_no_number_stays_one(library) -> None:
    samples = noise(20)
    samples[HOP * 10 + 200] = np.nan
    found = energies(library, samples, 0, 20, filters(80))
    touched = [i for i in range(20) if HOP * i <= HOP * 10 + 200 < HOP * i + FFT]
    used = filters(80).any(axis=1)
    assert np.isnan(found[used][:, touched]).all()
    assert np.isfinite(np.delete(found, touched, axis=1)).all()
