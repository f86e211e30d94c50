"""Numbers that every Whisper model shares (whisper.h names without the prefix)."""

from __future__ import annotations

from typing import Final

SAMPLE_RATE: Final = 16000
"""Samples per second of the audio a model hears."""
N_FFT: Final = 400
"""Samples in one analysis window (25 ms)."""
N_FFT_BINS: Final = N_FFT // 2 + 1
"""Frequencies that a window is taken apart into, from 0 Hz to half the sample rate."""
HOP_LENGTH: Final = 160
"""Samples from one mel frame to the next (10 ms)."""
CHUNK_SIZE: Final = 30
"""Seconds of audio in one encoder window."""
MAX_DECODERS: Final = 8
"""Most decoders (beams or best-of candidates) that run side by side."""
MAX_THREADS: Final = 512
"""Most threads that a job can ask for (GGML_MAX_N_THREADS)."""

FRAMES_PER_SECOND: Final = SAMPLE_RATE // HOP_LENGTH
"""Mel frames per second; one frame is one centisecond."""
FRAMES_PER_CHUNK: Final = CHUNK_SIZE * FRAMES_PER_SECOND
"""Mel frames in one encoder window."""
