"""Beam search as a plain list of texts: extend each by its best tokens, keep the best texts, never one twice."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .greedy import Attempt, Pick, Transcriber
from .network import Encoded, SelfCache, Whisper, softmax
from .rules import Settings, apply

Array = npt.NDArray[Any]


@dataclass
class Beam:
    """One text in the beam."""

    text: Attempt = field(default_factory=Attempt)
    total: float = 0.0
    done: bool = False


class BeamTranscriber(Transcriber):
    """Beam search at temperature 0 of one model. A finished text keeps its place.

    `margin` of an attempt's picks is the smallest difference between the total of a text that was kept and one that
    was not, or between two that were kept next to each other, over the window.
    """

    def __init__(self, net: Whisper, params: Settings | None = None, beam_size: int = 5) -> None:
        super().__init__(net, params)
        self.beam_size = beam_size

    def offers(self, beam: Beam, logits: Array) -> list[tuple[float, Pick]]:
        """The best next tokens of one text, each with the total it leads to."""
        a = beam.text
        chosen = [pick.id for pick in a.picks]
        c = apply(logits, chosen, self.sp, self.space, self.p, self.net.s["n_audio_ctx"], a.has_ts, a.seek_delta)
        order = np.argsort(-c.logprobs, kind="stable")[: self.beam_size + 1]
        stamps = c.probs[self.sp.beg :]
        found = []
        for token in map(int, order):
            if np.isfinite(c.logprobs[token]):
                tid = token if token >= self.sp.beg else self.sp.beg + int(np.argmax(stamps))
                pick = Pick(token, float(c.probs[token]), float(c.logprobs[token]), tid, c.margin)
                found.append((beam.total + pick.plog, pick))
        return found

    def attempt(self, encoded: Encoded, history: list[int], seek: int, end: int) -> Attempt:
        prefix = self.task_prefix()
        prompt = ([self.sp.prev, *history] if history else []) + prefix
        rows = self.net.decode(prompt, encoded, SelfCache())
        no_speech_prob = float(softmax(rows[len(prompt) - len(prefix)])[self.sp.nosp])
        beams = [Beam() for _ in range(self.beam_size)]
        n_max = self.net.s["n_text_ctx"] // 2 - 4
        margin = np.inf
        for i in range(n_max):
            pool = []
            for place, beam in enumerate(beams):
                if not beam.done:
                    tokens = prompt + [pick.id for pick in beam.text.picks]
                    logits = self.net.decode(tokens, encoded, SelfCache())[-1]
                    pool += [(total, place, rank, pick) for rank, (total, pick) in enumerate(self.offers(beam, logits))]
            pool.sort(key=lambda offer: (-offer[0], offer[1], offer[2]))
            taken: list[tuple[float, list[int]]] = []
            before = copy.deepcopy(beams)
            free = [place for place, beam in enumerate(beams) if not beam.done]
            for total, place, rank, pick in pool:
                text = [q.id for q in before[place].text.picks] + [pick.id]
                if any(text == other for _, other in taken):
                    continue
                if taken:
                    margin = min(margin, taken[-1][0] - total)
                if len(taken) == len(free) or rank == self.beam_size:
                    break  # the first that is left out; one more than the engine looks at
                beam = copy.deepcopy(before[place])
                beam.text.picks.append(pick)
                beam.total = total
                beams[free[len(taken)]] = beam
                taken.append((total, text))
            for place in free:
                beams[place].done = self.update(beams[place].text, i, n_max, seek, end) or beams[place].text.failed
            if all(beam.done for beam in beams):
                break
        return self.best(beams, no_speech_prob, float(margin))

    def best(self, beams: list[Beam], no_speech_prob: float, margin: float) -> Attempt:
        """The text with the highest average log probability that has not failed."""
        for beam in beams:
            kept = beam.text.kept
            beam.text.avg_logprob = sum(pick.plog for pick in kept) / len(kept) if kept else -np.inf
        order = sorted(beams, key=lambda beam: (beam.text.failed, -beam.text.avg_logprob))
        best = order[0].text
        if len(order) > 1 and order[1].text.failed == best.failed and np.isfinite(order[1].text.avg_logprob):
            margin = min(margin, best.avg_logprob - order[1].text.avg_logprob)
        best.no_speech_prob = no_speech_prob
        for pick in best.picks:
            pick.margin = margin
        return best
