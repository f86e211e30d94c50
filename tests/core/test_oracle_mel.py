"""Log-mel spectrogram against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle import mel as oracle
from tests.oracle.tiny_model import speechlike
from whispyx._core.mel import log_mel

# The core works in float32: a power that is a sum of 400 products carries a relative error of about 1e-6, and where
# bins cancel down to 80 dB below the loudest, some 1e-4 of a decade; a quarter of that is left after scaling.
MEL_TOLERANCE = 1e-4

SOUNDS = {
    "speechlike, 3 s": speechlike(3.0),
    "longer than a window": speechlike(41.3, seed=4),
    "silence": np.zeros(16000, np.float32),
    "one click": np.eye(1, 16000, 8000, dtype=np.float32)[0],
    "loud noise": np.random.default_rng(5).uniform(-1, 1, 48000).astype(np.float32),
    "very quiet noise": (1e-5 * np.random.default_rng(6).standard_normal(16000)).astype(np.float32),
}
LENGTHS = [1, 2, 79, 80, 100, 159, 160, 161, 199, 200, 201, 399, 400, 401, 1599, 1600, 1601, 15839, 15840]


def compare(samples: np.ndarray, n_mels: int, n_threads: int) -> None:
    filters = oracle.slaney_filters(n_mels)
    ours, theirs = log_mel(samples, filters, n_threads), oracle.log_mel(samples, filters)
    assert ours.shape == theirs.shape
    difference = float(np.abs(ours - theirs).max())
    print(f"mel of {len(samples)} samples, {n_mels} bands: largest difference {difference:.2e}")
    assert difference <= MEL_TOLERANCE


@pytest.mark.parametrize("n_mels", [80, 128])
@pytest.mark.parametrize("name", SOUNDS)
def test_mel_equals_the_oracle(name: str, n_mels: int) -> None:
    compare(SOUNDS[name], n_mels, n_threads=2)


@pytest.mark.parametrize("n_samples", LENGTHS)
def test_mel_of_very_short_sound_equals_the_oracle(n_samples: int) -> None:
    compare(speechlike(1.0, seed=n_samples)[:n_samples], 80, n_threads=1)


def test_mel_does_not_depend_on_the_number_of_threads() -> None:
    samples, filters = speechlike(5.0), oracle.slaney_filters(80)
    one = log_mel(samples, filters, 1)
    for n_threads in (2, 3, 7):
        assert np.array_equal(log_mel(samples, filters, n_threads), one)


def test_mel_of_silence_is_constant() -> None:
    # every band is log10(1e-10) = -10, clipped to nothing, and (-10 + 4) / 4 is exact
    mel = log_mel(np.zeros(8000, np.float32), oracle.slaney_filters(80))
    assert np.all(mel == np.float32(-1.5))
