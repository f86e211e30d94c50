"""The triangular mel filters that Whisper was trained with."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from whispyx.constants import N_FFT_BINS, SAMPLE_RATE

__all__ = ["mel_filters"]

# Slaney's scale is linear (3 mel in 200 Hz) up to 1 kHz, and logarithmic above it (27 mel in a factor of 6.4).
_LINEAR_HZ_PER_MEL = 200.0 / 3.0
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ_PER_MEL
_LOG_STEP = math.log(6.4) / 27.0


def _hz_of(mel: float) -> float:
    """Return the frequency in Hz of a position on the mel scale.

    NumPy's exp() rounds by the vectors of the processor. The C library's is right to the last bit but for rare cases,
    none of which reaches the float32 of a filter: the filters are the same on every processor.
    """
    if mel < _BREAK_MEL:
        return mel * _LINEAR_HZ_PER_MEL
    return _BREAK_HZ * math.exp(_LOG_STEP * (mel - _BREAK_MEL))


def mel_filters(n_mels: int) -> npt.NDArray[np.float32]:
    """Make the filters that turn a power spectrum into mel bands.

    Parameters
    ----------
    n_mels : int
        Number of bands: 80, or 128 for the large-v3 family.

    Returns
    -------
    numpy.ndarray
        float32, shape (n_mels, 201): one row of weights per band. Every triangle has the same area.

    Notes
    -----
    Slaney, "Auditory Toolbox" (1998), in the form that `librosa.filters.mel` made common. The triangles are rounded
    to float32 before and after the scaling, because the published filters were; the last bit agrees only so.
    """
    top = _BREAK_MEL + math.log(SAMPLE_RATE / 2 / _BREAK_HZ) / _LOG_STEP
    corners = np.array([_hz_of(mel) for mel in np.linspace(0.0, top, n_mels + 2)])
    bins = np.linspace(0.0, SAMPLE_RATE / 2, N_FFT_BINS)
    widths = np.diff(corners)
    rising = (bins - corners[:-2, None]) / widths[:-1, None]
    falling = (corners[2:, None] - bins) / widths[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)
    area = 2.0 / (corners[2:] - corners[:-2])
    filters: npt.NDArray[np.float32] = (triangles * area[:, None]).astype(np.float32)
    return filters
