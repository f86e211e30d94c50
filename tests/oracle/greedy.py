"""Greedy transcription: windows, prompts, one token at a time, segments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import mel as mels
from .network import Encoded, SelfCache, Whisper, softmax
from .rules import Settings, apply
from .tokens import Special, tokenize

Array = npt.NDArray[Any]
STEP = 10  # frames: less sound than this is not looked at
WINDOW = 3000  # frames of 10 ms in a whole window
LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
).split()


@dataclass
class Pick:
    """One chosen token: its probability, and the most probable timestamp at that moment."""

    id: int
    p: float
    plog: float
    tid: int
    margin: float


@dataclass
class Segment:
    """Times in units of 10 ms from the start of the sound."""

    t0: int
    t1: int
    text: bytes
    tokens: list[int]
    no_speech_prob: float


@dataclass
class Attempt:
    """One try at a window."""

    picks: list[Pick] = field(default_factory=list)
    result_len: int = 0
    seek_delta: int = WINDOW
    has_ts: bool = False
    failed: bool = False
    untimed: bool = False  # the text has ended and has no time at all, so nothing of it is cut
    no_speech_prob: float = 0.0
    avg_logprob: float = -np.inf

    @property
    def kept(self) -> list[Pick]:
        return self.picks if self.untimed else self.picks[: self.result_len]


@dataclass
class Transcript:
    segments: list[Segment] = field(default_factory=list)
    windows: list[tuple[int, Attempt]] = field(default_factory=list)  # (seek, attempt)

    @property
    def tokens(self) -> list[int]:
        return [pick.id for _, attempt in self.windows for pick in attempt.picks]

    @property
    def margin(self) -> float:
        """The closest call of all: differences in logits well below it cannot change a token."""
        return min((pick.margin for _, attempt in self.windows for pick in attempt.picks), default=np.inf)


@dataclass
class Follow:
    """Somebody else's tokens, to be taken instead of ours wherever ours lead by less than `within`."""

    tokens: list[int]
    within: float
    close_calls: list[tuple[int, int, float]] = field(default_factory=list)  # (ours, theirs, lead)


class Transcriber:
    """Greedy decoding at temperature 0 of one model.

    With `follow`, the tokens of another engine decide the close calls. If the segments then equal those of the other
    engine, it has decoded greedily too, up to rounding.
    """

    def __init__(
        self,
        net: Whisper,
        params: Settings | None = None,
        follow: Follow | None = None,
        special: Special | None = None,
    ) -> None:
        self.net = net
        self.follow = follow
        self.followed = 0
        self.audio_end = 0
        self.model = net.model
        p = params or Settings()
        # the first distilled models never learned timestamps
        self.sp = special or Special.of(net.s["n_vocab"])
        untimed = p.no_timestamps or (net.s["n_text_layer"] == 2 and self.sp.end != 51866)
        self.p = replace(p, no_timestamps=untimed)
        self.space = {token: i for i, token in enumerate(self.model.tokens)}[b" "]
        self.n_ctx = self.p.audio_ctx or net.s["n_audio_ctx"]
        self.max_prompt = min(self.p.n_max_text_ctx, net.s["n_text_ctx"] // 2)

    def detect_language(self, mel: Array, seek: int = 0) -> Array:
        """Probability of each of the model's languages, from the sound at `seek`."""
        encoded = self.net.encode(mels.window_of(mel, seek, self.n_ctx))
        logits = self.net.decode([self.sp.sot], encoded, SelfCache())[0]
        return softmax(logits[self.sp.lang : self.sp.lang + self.sp.n_languages])

    def task_prefix(self) -> list[int]:
        prefix = [self.sp.sot]
        if self.sp.multilingual:
            task = self.sp.translate if self.p.translate else self.sp.transcribe
            prefix += [self.sp.lang + LANGUAGES.index(self.p.language), task]
        return prefix + [self.sp.no_timestamps] * self.p.no_timestamps

    def run(self, samples: Array) -> Transcript:
        """Transcribe mono sound at 16 kHz."""
        mel = mels.log_mel(samples, self.model.filters, self.net.dtype)
        start = self.p.offset_ms // 10
        end = start + self.p.duration_ms // 10 if self.p.duration_ms else mels.n_frames_of_sound(len(samples))
        self.audio_end = max(mels.n_frames_of_sound(len(samples)), (len(samples) + 159) // 160)
        out = Transcript()
        if end < start + STEP:
            return out
        history = list(self.p.prompt_tokens) or tokenize(self.model, self.p.initial_prompt)
        seek = start
        while seek + STEP < end:
            encoded = self.net.encode(mels.window_of(mel, seek, self.n_ctx))
            if seek > start and seek + 500 >= end:
                history = []
            shown = history[-(self.max_prompt - 1) :] if self.p.n_max_text_ctx > 0 and self.max_prompt > 1 else []
            attempt = self.attempt(encoded, shown, seek, end)
            out.windows.append((seek, attempt))
            silent = attempt.no_speech_prob > self.p.no_speech_thold and attempt.avg_logprob < self.p.logprob_thold
            history = shown if silent else shown + [pick.id for pick in attempt.picks[: attempt.result_len]]
            seek_delta = attempt.seek_delta
            if not silent:
                out.segments += self.segments(attempt, seek, end)
            if self.ends_with_one_timestamp(attempt.kept):
                seek_delta = min(end - seek, WINDOW)
            seek += seek_delta
        return out

    def attempt(self, encoded: Encoded, history: list[int], seek: int, end: int) -> Attempt:
        """Decode one window greedily."""
        sp, a = self.sp, Attempt()
        cache = SelfCache()
        prefix = self.task_prefix()
        prompt = ([sp.prev, *history] if history else []) + prefix
        rows = self.net.decode(prompt, encoded, cache)
        a.no_speech_prob = float(softmax(rows[len(prompt) - len(prefix)])[sp.nosp])
        logits = rows[-1]
        n_max = self.net.s["n_text_ctx"] // 2 - 4
        for i in range(n_max):
            a.picks.append(self.pick(logits, a))
            if self.update(a, i, n_max, seek, end):
                break
            logits = self.net.decode([a.picks[-1].id], encoded, cache)[-1]
        if a.kept:
            a.avg_logprob = sum(pick.plog for pick in a.kept) / len(a.kept)
        return a

    def pick(self, logits: Array, a: Attempt) -> Pick:
        """The most probable token that the rules allow; the lowest id where two are equal."""
        chosen = [pick.id for pick in a.picks]
        c = apply(logits, chosen, self.sp, self.space, self.p, self.net.s["n_audio_ctx"], a.has_ts, a.seek_delta)
        best = int(np.argmax(c.probs))
        if self.follow and self.followed < len(self.follow.tokens):
            wanted = self.follow.tokens[self.followed]
            lead = c.lead_over(wanted)
            if best == wanted or lead < self.follow.within:
                self.followed += 1
            if best != wanted and lead < self.follow.within:
                self.follow.close_calls.append((best, wanted, lead))
                best = wanted
        stamps = c.probs[self.sp.beg : self.sp.end]
        tid = best if c.is_stamp(best) else self.sp.beg + int(np.argmax(stamps))
        return Pick(best, float(c.probs[best]), float(c.logprobs[best]), tid, c.margin)

    def update(self, a: Attempt, i: int, n_max: int, seek: int, end: int) -> bool:
        """Take note of token `i`. True when the window is done, one way or the other."""
        token = a.picks[-1].id
        if self.is_late(token):
            new = 2 * (token - self.sp.beg)
            if a.has_ts and a.seek_delta > new and a.result_len < i:
                a.failed = True
                return True
            a.seek_delta, a.result_len, a.has_ts = new, i + 1, True
        at_end = seek + a.seek_delta + STEP >= end
        if token == self.sp.eot or (self.p.max_tokens and i >= self.p.max_tokens) or (a.has_ts and at_end):
            if a.result_len == 0 and not self.p.no_timestamps:
                if not at_end:
                    a.failed = True
                    a.untimed = token == self.sp.eot
                    return True
                a.result_len = i + 1
            if self.p.single_segment or self.p.no_timestamps:
                a.result_len, a.seek_delta = i + 1, WINDOW
            return True
        if i == n_max - 1 and (a.result_len == 0 or a.seek_delta < WINDOW // 2):
            a.failed = True
        return a.failed

    def segments(self, a: Attempt, seek: int, end: int) -> list[Segment]:
        """Cut the window's tokens at timestamps. Text behind the last one ends with the window, or with the sound."""
        picks, beg = a.kept, self.sp.beg
        if not picks:
            return []

        def time_of(pick: Pick) -> int:
            return min(seek + 2 * (pick.tid - beg), self.audio_end)

        out: list[Segment] = []
        first, t0, text, i = 0, time_of(picks[0]), b"", 0
        while i < len(picks):
            pick = picks[i]
            if pick.id < self.sp.eot or pick.id >= self.sp.end:
                text += self.model.tokens[pick.id]
            if self.is_late(pick.id) and not self.p.single_segment:
                if text:
                    ids = [q.id for q in picks[first : i + 1]]
                    out.append(Segment(t0, time_of(pick), text, ids, a.no_speech_prob))
                text, t0 = b"", time_of(pick)
                while i + 1 < len(picks) and self.is_late(picks[i + 1].id):
                    i += 1
                    t0 = time_of(picks[i])
                first = i + 1
            i += 1
        if text:
            ids = [q.id for q in picks[first:]]
            out.append(Segment(t0, min(seek + a.seek_delta, max(end, t0)), text, ids, a.no_speech_prob))
        return out

    def ends_with_one_timestamp(self, picks: list[Pick]) -> bool:
        """A lone timestamp at the end says that nothing more is spoken in this window."""
        cut_short = self.p.max_tokens > 0 and not self.p.single_segment and len(picks) > self.p.max_tokens
        before = len(picks) > 1 and not self.sp.beg <= picks[-2].id < self.sp.end
        return before and self.is_late(picks[-1].id) and not cut_short

    def is_late(self, token: int) -> bool:
        """Whether a token is a timestamp after 0.00 s."""
        return self.sp.beg < token < self.sp.end
