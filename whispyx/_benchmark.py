"""What belongs to a runner beside its stages: probabilities of logits, and measuring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ParamsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .runner import Runner

__all__ = ["StageTimes", "log_softmax", "measure"]


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the natural logarithm of the probability of each token, float64, along the last axis."""
    wide = np.asarray(logits, dtype=np.float64)
    highest = wide.max(axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise ParamsError("logits need at least one finite value in each row, and none that is infinite or no number")
    shifted = wide - highest
    out: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out


@dataclass(frozen=True)
class StageTimes:
    """What a benchmark measured, in milliseconds; 0 for a stage that did not run.

    Attributes
    ----------
    mel_ms, encode_ms, cross_ms, prefill_ms, decode_ms : float
        Spectrogram, encoder, cross-attention keys and values, prompt, and all steps together.
    n_steps : int
        How many steps there were.
    tokens : tuple of int
        What the steps chose: the likeliest allowed token each time.
    logits : numpy.ndarray
        Those of the prompt's last token, float32 (n_vocab,), to compare one device with another.
    """

    mel_ms: float
    encode_ms: float
    cross_ms: float
    prefill_ms: float
    decode_ms: float
    n_steps: int
    tokens: tuple[int, ...]
    logits: NDArray[np.float32]

    @property
    def total_ms(self) -> float:
        """Sum of all stages."""
        return self.mel_ms + self.encode_ms + self.cross_ms + self.prefill_ms + self.decode_ms

    @property
    def step_ms(self) -> float:
        """Mean of one step; 0 without steps."""
        return self.decode_ms / self.n_steps if self.n_steps else 0.0

    def __str__(self) -> str:
        names = ("mel", "encode", "cross", "prefill", "decode", "total")
        lines = [f"{name:8}{getattr(self, f'{name}_ms'):10.2f} ms" for name in names]
        lines[4] += f"  {self.n_steps} steps, {self.step_ms:.2f} ms each"
        return "\n".join(lines)


def measure(
    runner: Runner,
    samples: NDArray[np.float32] | None,
    encoder_output: NDArray[np.float32] | None,
    prefill_logits: NDArray[np.float32] | None,
    prompt: Sequence[int] | None,
    n_steps: int,
    stop_at_end: bool,
) -> StageTimes:
    """Run the stages from the starting point on that is given, and tell how long each took."""
    before = runner.stage_clock()
    mel_ms = prefill_ms = 0.0
    if samples is not None:
        mel_ms = _timed(lambda: runner.set_audio(samples))
        runner.encode()
    elif encoder_output is not None:
        runner.set_encoder_output(encoder_output)
    after = runner.stage_clock()
    if prefill_logits is None:
        runner.drop(0)
        start = runner.prompt() if prompt is None else list(prompt)
        prefill_ms = _timed(lambda: runner.prefill(start))
        logits = runner.logits()[-1]
    else:
        logits = np.array(prefill_logits, dtype=np.float32)
        if logits.shape != (runner.n_vocab,):
            raise ParamsError(f"prefill_logits must be float32 ({runner.n_vocab},); got {logits.shape}")
    held = runner.length(0)
    tokens: list[int] = []
    began = time.perf_counter()
    row = logits.copy()
    for _ in range(min(n_steps, runner.max_decode_steps, runner.n_text_ctx - held)):
        runner.suppress(row, first=not tokens)
        if not stop_at_end:
            row[runner.eot] = -np.inf
        tokens.append(int(row.argmax()))
        if tokens[-1] == runner.eot:
            break
        row = runner.step(tokens[-1])
    decode_ms = (time.perf_counter() - began) * 1e3
    if prefill_logits is not None:
        runner.drop(0, held)
    return StageTimes(
        mel_ms,
        after.encode_ms - before.encode_ms,
        after.cross_ms - before.cross_ms,
        prefill_ms,
        decode_ms,
        len(tokens),
        tuple(tokens),
        logits,
    )


def _timed(work: Callable[[], Any]) -> float:
    """Return how many milliseconds `work` takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3
