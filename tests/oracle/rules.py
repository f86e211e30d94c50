"""Which tokens may come next: the rules between the network's logits and a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .tokens import Special

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """The settings of a run that the oracle knows, with the engine's defaults. Times in ms, lengths in tokens."""

    language: str = "en"
    translate: bool = False
    no_context: bool = True
    no_timestamps: bool = False
    single_segment: bool = False
    max_tokens: int = 0
    suppress_blank: bool = True
    max_initial_ts: float = 1.0
    audio_ctx: int = 0
    offset_ms: int = 0
    duration_ms: int = 0
    initial_prompt: str = ""
    prompt_tokens: tuple[int, ...] = ()  # instead of initial_prompt
    suppressed: tuple[int, ...] = ()  # ids that a pattern forbids; no setting of an engine
    n_max_text_ctx: int = 16384
    entropy_thold: float = 2.4
    logprob_thold: float = -1.0
    no_speech_thold: float = 0.6


def log_softmax(x: Array) -> Array:
    top = x.max()
    return x - top - np.log(np.exp(x - top).sum())


def log_sum_exp(x: Array) -> float:
    top = x.max()
    return float(top + np.log(np.exp(x - top).sum())) if np.isfinite(top) else -np.inf


@dataclass(frozen=True)
class Choice:
    """Probabilities after the rules, and how far ahead the best token was of the next in logits."""

    probs: Array
    logprobs: Array
    margin: float
    before: Array  # log probabilities before words or timestamps were ruled out as a whole
    stamps_lead: float  # log probability of "some timestamp" over that of the best word
    beg: int
    end: int

    def is_stamp(self, token: int) -> bool:
        return self.beg <= token < self.end

    def lead_over(self, token: int) -> float:
        """How much the logits would have to move for `token` to be chosen; infinite where a rule forbids it."""
        stamps = np.zeros(len(self.before), bool)
        stamps[self.beg : self.end] = True
        group = self.before[stamps == self.is_stamp(token)]
        if not np.isfinite(self.before[token]):
            return np.inf
        within = float(group.max() - self.before[token])
        other_group_won = (self.stamps_lead > 0) != self.is_stamp(token)
        return within + (abs(self.stamps_lead) if other_group_won else 0.0)


def apply(
    logits: Array,
    chosen: list[int],
    sp: Special,
    space: int,
    p: Settings,
    n_audio_ctx: int,
    has_ts: bool,
    seek_delta: int,
) -> Choice:
    """Apply every rule to one row of logits. `chosen` are the tokens of this window so far, `space` the id of " "."""
    x = np.array(logits)
    beg, end, first = sp.beg, sp.end, not chosen

    def ban(ids: Any) -> None:
        x[ids] = -np.inf

    if p.suppress_blank and first:
        ban([sp.eot, space])
    ban(sp.no_timestamps)
    if p.no_timestamps:
        ban(slice(beg, end))
    if p.max_tokens and not p.single_segment and not p.no_timestamps and len(chosen) >= p.max_tokens:
        ban(slice(0, sp.eot))
        ban(slice(end, None))
    ban([sp.sot, sp.nosp, sp.solm, sp.translate, sp.transcribe, sp.prev])
    ban(slice(sp.lang, sp.lang + 100))
    ban(list(p.suppressed))

    last_is_ts = bool(chosen) and beg <= chosen[-1] < end
    before_is_ts = len(chosen) < 2 or beg <= chosen[-2] < end
    if last_is_ts and before_is_ts:
        ban(slice(beg, end))
    elif last_is_ts:
        ban(slice(0, sp.eot))
        ban(slice(end, None))
    if first and p.max_initial_ts > 0:
        latest = int(p.max_initial_ts / (30 / n_audio_ctx) + 0.5)
        ban(slice(beg + latest + 1, end))
    if has_ts:
        ban(slice(beg, beg + seek_delta // 2))

    logprobs = log_softmax(x)
    margin = np.inf
    others = np.ones(len(x), bool)
    others[beg:end] = False
    stamps, words = log_sum_exp(logprobs[beg:end]), float(logprobs[others].max())
    if np.isfinite(stamps) and np.isfinite(words):
        margin = abs(stamps - words)  # a close call between "some timestamp" and "this word" counts as a near tie
    before = logprobs.copy()
    if stamps > words:
        logprobs[others] = -np.inf
    second, first_place = np.partition(logprobs, -2)[-2:]
    if np.isfinite(second):
        margin = min(margin, float(first_place - second))
    return Choice(np.exp(logprobs), logprobs, margin, before, stamps - words, beg, end)
