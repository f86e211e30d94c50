"""Where the time of a state went since it was made or its clock was reset."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from whispyx._core.results import Timings

PROMPT_TOKENS = 16  # a batch of this size or more counts as a prompt


@dataclass
class Clock:
    """Sums in milliseconds and counts, stage by stage."""

    started: float = field(default_factory=time.perf_counter)
    mel_ms: float = 0.0
    encode_ms: float = 0.0
    decode_ms: float = 0.0
    batchd_ms: float = 0.0
    prompt_ms: float = 0.0
    sample_ms: float = 0.0
    n_encode: int = 0
    n_decode: int = 0
    n_batchd: int = 0
    n_prompt: int = 0
    n_sample: int = 0
    n_fail_p: int = 0
    n_fail_h: int = 0

    def add(self, run: Timings) -> None:
        """Count in a whole run."""
        self.mel_ms += run.mel_ms
        self.encode_ms += run.encode_ms + run.cross_ms
        self.decode_ms += run.decode_ms
        self.batchd_ms += run.batchd_ms
        self.prompt_ms += run.prompt_ms
        self.sample_ms += run.sample_ms
        self.n_encode += run.n_encode
        self.n_decode += run.n_decode
        self.n_batchd += run.n_batchd
        self.n_prompt += run.n_prompt
        self.n_sample += run.n_sample
        self.n_fail_p += run.n_fail_p
        self.n_fail_h += run.n_fail_h

    @contextmanager
    def mel(self) -> Iterator[None]:
        """Time a spectrogram that is computed by itself."""
        start = time.perf_counter()
        yield
        self.mel_ms += 1e3 * (time.perf_counter() - start)

    @contextmanager
    def encode(self) -> Iterator[None]:
        """Time an encoder run that stands by itself."""
        start = time.perf_counter()
        yield
        self.encode_ms += 1e3 * (time.perf_counter() - start)
        self.n_encode += 1

    @contextmanager
    def decode(self, n_tokens: int) -> Iterator[None]:
        """Time a decoder run that stands by itself."""
        start = time.perf_counter()
        yield
        spent = 1e3 * (time.perf_counter() - start)
        if n_tokens == 1:
            self.decode_ms += spent
            self.n_decode += 1
        elif n_tokens < PROMPT_TOKENS:
            self.batchd_ms += spent
            self.n_batchd += n_tokens
        else:
            self.prompt_ms += spent
            self.n_prompt += n_tokens

    def reset(self) -> None:
        """Begin anew, but for the counts of failed attempts."""
        self.__init__(n_fail_p=self.n_fail_p, n_fail_h=self.n_fail_h)  # type: ignore[misc]

    @property
    def total_ms(self) -> float:
        """Time since the start."""
        return 1e3 * (time.perf_counter() - self.started)
