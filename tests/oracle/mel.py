"""Sound to log-mel spectrogram, and the mel filter bank."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

RATE, N_FFT, HOP = 16000, 400, 160
PAD_SECONDS = 30


def n_frames(n_samples: int) -> int:
    """Frames in the spectrogram of `n_samples`, the 30 s of silence behind the sound included."""
    return (n_samples + PAD_SECONDS * RATE) // HOP


def n_frames_of_sound(n_samples: int) -> int:
    """Frames that hold sound, as the engine counts them (division towards zero)."""
    return 1 + int((n_samples - N_FFT // 2) / HOP)


def log_mel(samples: npt.NDArray[Any], filters: npt.NDArray[Any], dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Spectrogram `(n_mels, n_frames)` of mono sound at 16 kHz.

    The left edge is a mirror image of the first 200 samples, the right edge 30 s of zeros. Values are clipped to
    80 dB below the loudest one of the whole recording.
    """
    x = np.asarray(samples, dtype)
    left = np.zeros(N_FFT // 2, dtype)
    mirrored = x[1 : N_FFT // 2 + 1][::-1]  # what a very short recording lacks stays zero
    if len(mirrored):
        left[-len(mirrored) :] = mirrored
    padded = np.concatenate([left, x, np.zeros(PAD_SECONDS * RATE + N_FFT // 2, dtype)])
    total = n_frames(len(x))
    heard = min((len(x) + N_FFT // 2) // HOP + 1, total)
    window = 0.5 * (1 - np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT))
    frames = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP][:heard]
    power = np.abs(np.fft.rfft(frames * window.astype(dtype), axis=1)) ** 2
    mel = np.full((len(filters), total), -10.0, dtype)
    mel[:, :heard] = np.log10(np.maximum(filters.astype(dtype) @ power.T, 1e-10))
    mel = np.maximum(mel, mel.max() - 8.0)
    return (mel + 4.0) / 4.0


def window_of(mel: npt.NDArray[Any], seek: int, n_ctx: int) -> npt.NDArray[Any]:
    """The `2 * n_ctx` frames from `seek` on; frames past the end are zero."""
    out = np.zeros((len(mel), 2 * n_ctx), mel.dtype)
    part = mel[:, seek : seek + 2 * n_ctx]
    out[:, : part.shape[1]] = part
    return out


def _hz_of(step: float) -> float:
    """Slaney's scale: straight for 15 steps up to 1 kHz, then 27 steps for a factor of 6.4."""
    # The C library's functions: NumPy's round by the vectors of the processor, and the last bit counts here.
    return step * 200 / 3 if step < 15 else 1000 * math.exp((step - 15) * math.log(6.4) / 27)


def slaney_filters(n_mels: int) -> npt.NDArray[np.float32]:
    """Triangular filters of equal area `(n_mels, 201)` from 0 to 8 kHz, to the bit those of the published models.

    These were rounded to float32 twice: the triangles, then their product with 2 / width.
    """
    last = 15 + 27 * math.log(RATE / 2 / 1000) / math.log(6.4)
    edges = np.array([_hz_of(last * i / (n_mels + 1)) for i in range(n_mels + 2)])
    bins = np.fft.rfftfreq(N_FFT, 1 / RATE)
    low, mid, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    up, down = (bins - low) / (mid - low), (high - bins) / (high - mid)
    triangles = np.maximum(0, np.minimum(up, down)).astype(np.float32)
    return (triangles * (2 / (high - low))).astype(np.float32)
