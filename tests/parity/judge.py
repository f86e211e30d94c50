"""Whether rounding decided: two continuations so close that either engine may take either.

A choice is judged in float64 by the oracle. Without temperature, the token that was taken must lead or all but lead.
With temperature, the random number that the engine drew is known, since generators begin each call at fixed numbers:
the token that was taken must be the one it falls on, or the one next to it when it falls on their border.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tests import data
from tests.oracle import mel as mels
from tests.oracle.align import cost_matrix
from tests.oracle.greedy import Attempt, Follow, Pick, Transcriber
from tests.oracle.network import SelfCache, Whisper, softmax
from tests.oracle.reader import read_model
from tests.oracle.rules import Settings, apply
from tests.oracle.tokens import Special
from tests.parity import sounds
from tests.parity.compare import Answer, tokens_of
from tests.parity.grid import BASE, Case
from tests.parity.silence import cut
from whispyx._core.align.heads import PRESETS

CLOSE_CALL: Final = 0.02  # lead in logits below which rounding may decide, as in test_parity_whispercpp
BORDER: Final = 0.004  # of probability: what differences of logits of 0.02 at most come to
MOST_CLOSE_CALLS: Final = 2
CLOSE_PATHS: Final = 0.05  # of sums of some hundred standardised weights, each rounded by 0.001
MOST_DRAWS: Final = 2500  # of one decoder before the window's last attempt
MAX_DECODERS: Final = 8
Array = npt.NDArray[np.float64]


@lru_cache(maxsize=1)
def _oracle(model: str) -> Whisper:
    return Whisper(read_model(data.model_file(model)))


# What these settings ask for is done with the tokens once they are chosen.
AFTERWARDS: Final = {
    "n_threads", "token_timestamps", "thold_pt", "thold_ptsum", "max_len", "split_on_word", "print_special",
}  # fmt: skip
LADDER: Final = {"best_of", "temperature", "temperature_inc", "strategy"}


def near_tie(case: Case, ours: Answer, theirs: Answer) -> str:
    """Say what decided when exact arithmetic allows both answers, else ""."""
    if case.params.get("vad"):
        overlap = case.params.get("vad_params", {}).get("samples_overlap", 0.1)
        sound, _ = cut(sounds.array(case.sound), [(t0, t1) for t0, t1 in ours["vad_segments"]], overlap)
        spoken = {name: value for name, value in case.params.items() if not name.startswith("vad")}
        case = replace(case, sound=sounds.derive(sound), params=spoken)
    params = {**BASE, "temperature": 0.0, "strategy": "greedy", **case.params}
    if params["language"] == "auto":
        params["language"] = theirs["language"]
    pattern = params.pop("suppress_regex", None)
    if pattern is not None:
        params["suppressed"] = _matching(case.model, pattern)
    known = set(Settings.__dataclass_fields__)
    if not set(params) <= known | AFTERWARDS | LADDER or case.n_processors > 1:
        return ""
    if params["strategy"] != "greedy" or tokens_of(ours) == tokens_of(theirs):
        return ""
    settings = Settings(**{name: value for name, value in params.items() if name in known})
    both = (theirs, ours)
    found: list[tuple[float, ...] | None] = [None]
    if not params["temperature"]:
        found = [_followed(case.model, case.sound, settings, tuple(tokens_of(answer))) for answer in both]
    random = params["temperature"] or params["temperature_inc"]
    if None in found and random and len(sounds.array(case.sound)) <= 30 * sounds.RATE:
        ladder = _temperatures(params["temperature"], params["temperature_inc"])
        found = [
            next((calls for t in ladder if (calls := _drawn(case, settings, answer, t)) is not None), None)
            for answer in both
        ]
    calls = [call for one in found if one is not None for call in one]
    if None in found or not calls:
        return ""
    return "closest calls " + ", ".join(f"{call:.4f}" for call in calls)


def near_path(case: Case, ours: Answer, theirs: Answer) -> str:
    """Say how close two alignments of the same tokens are when rounding may decide between them, else ""."""
    if case.n_processors > 1 or len(sounds.array(case.sound)) > 30 * sounds.RATE:
        return ""
    cost = _alignment_costs(case, tokens_of(theirs))
    beg = Special.of(_oracle(case.model).s["n_vocab"]).beg
    paths = []
    for answer in (ours, theirs):
        pairs = [(t, i) for s in answer["segments"] for t, i in zip(s["t_dtw"], s["tokens"], strict=True) if i < beg]
        paths.append([0, *[t // 2 for t, _ in pairs if t >= 0]])
        if len(paths[-1]) != len(cost):
            return ""
    apart = abs(_path_cost(cost, paths[0]) - _path_cost(cost, paths[1]))
    return f"costs of two paths differ by {apart:.4f}" if apart < CLOSE_PATHS else ""


def _alignment_costs(case: Case, tokens: list[int]) -> Array:
    """Costs `(1 + n_text, n_positions)` by whisper.cpp's rules: no task token, heads see the whole window."""
    net = _oracle(case.model)
    sp = Special.of(net.s["n_vocab"])
    heads = [tuple(head) for head in (case.aheads or {}).get("heads", ())] or PRESETS.get((case.aheads or {})["preset"])
    if not heads:
        n, n_top = net.s["n_text_layer"], (case.aheads or {})["n_top"]
        heads = [(layer, head) for layer in range(n - n_top, n) for head in range(net.s["n_text_head"])]
    sound = sounds.array(case.sound)
    n_ctx = case.params.get("audio_ctx") or net.s["n_audio_ctx"]
    encoded = net.encode(mels.window_of(mels.log_mel(sound, net.model.filters, net.dtype), 0, n_ctx))
    before = [sp.sot, sp.lang] if sp.multilingual else [sp.sot]
    text = [token for token in tokens if token < sp.eot]
    stamps = [2 * (token - sp.beg) for token in tokens if token > sp.beg]
    n_positions = min(stamps[-1] if stamps else 3000, mels.n_frames_of_sound(len(sound)), 2 * n_ctx) // 2
    scores: list[Any] = []
    net.decode([*before, sp.no_timestamps, *text, sp.eot], encoded, SelfCache(), scores)
    weights = np.stack([softmax(scores[layer][head])[:, :n_positions] for layer, head in heads])
    costs: Array = cost_matrix(weights)[len(before) : -1]
    return costs


def _path_cost(cost: Array, starts: list[int]) -> float:
    """What a path costs whose rows begin at these columns. A row may go on into the column where the next begins."""
    total = 0.0
    for row, first in enumerate(starts):
        if row + 1 == len(starts):
            total += float(cost[row, first:].sum())
        else:
            end = starts[row + 1]
            whole = float(cost[row, first:end].sum())
            longer = whole + float(cost[row, end])
            total += longer if end == first else min(whole, longer)
    return total


def _matching(model: str, pattern: str) -> tuple[int, ...]:
    """Text tokens that a pattern matches as a whole."""
    whole = re.compile(pattern)
    eot = Special.of(_oracle(model).s["n_vocab"]).eot
    tokens = enumerate(_oracle(model).model.tokens[:eot])
    return tuple(i for i, text in tokens if whole.fullmatch(text.decode("utf-8", "replace")))


@lru_cache(maxsize=64)
def _followed(model: str, sound: str, settings: Settings, tokens: tuple[int, ...]) -> tuple[float, ...] | None:
    """Leads of the tokens that were not taken though they lead, on a greedy path; None where it is none."""
    follow = Follow(list(tokens), CLOSE_CALL)
    truth = Transcriber(_oracle(model), settings, follow).run(sounds.array(sound))
    if tuple(token for segment in truth.segments for token in segment.tokens) != tokens:
        return None
    calls = tuple(lead for _, _, lead in follow.close_calls)
    return calls if len(calls) <= MOST_CLOSE_CALLS else None


def _temperatures(first: float, step: float) -> list[float]:
    out = [first]
    while step > 0 and out[-1] + step < 1 + 1e-6:
        out.append(out[-1] + step)
    return [t for t in out if t > 1e-6]


def words(seed: int, n: int) -> npt.NDArray[np.uint64]:
    """The first n words of 32 bits of C++'s mt19937 with this seed."""
    generator = np.random.MT19937()
    generator._legacy_seeding(seed)
    return generator.random_raw(n)


def draws(seed: int, n: int) -> Array:
    """The first n numbers in [0, 1) that C++ makes of them, each of two words."""
    pairs = words(seed, 2 * n).astype(np.float64)
    return (pairs[0::2] + pairs[1::2] * 2.0**32) / 2.0**64


def _spans(case: Case, settings: Settings, tokens: list[int], temperature: float) -> Iterator[tuple[float, float]]:
    """Where each token lies between 0 and 1 when all tokens lie side by side, as wide as they are probable."""
    net = _oracle(case.model)
    run = Transcriber(net, settings)
    sound = sounds.array(case.sound)
    end = mels.n_frames_of_sound(len(sound))
    encoded = net.encode(mels.window_of(mels.log_mel(sound, net.model.filters, net.dtype), 0, run.n_ctx))
    cache, attempt = SelfCache(), Attempt()
    logits = net.decode(run.task_prefix(), encoded, cache)[-1]
    for i, token in enumerate(tokens):
        chosen = tokens[:i]
        arguments: tuple[Any, ...] = (
            run.sp,
            run.space,
            run.p,
            net.s["n_audio_ctx"],
            attempt.has_ts,
            attempt.seek_delta,
        )
        probs = apply(logits / temperature, chosen, *arguments).probs
        ends = np.cumsum(probs / probs.sum())
        yield float(ends[token] - probs[token] / probs.sum()), float(ends[token])
        attempt.picks.append(Pick(token, float(probs[token]), 0.0, token, 0.0))
        run.update(attempt, i, len(tokens) + 1, 0, end)
        logits = net.decode([token], encoded, cache)[-1]


def _as_drawn(case: Case, segments: list[dict[str, Any]]) -> list[int]:
    """All tokens of the first window. The timestamp that opens a segment behind another is in neither of them."""
    beg = Special.of(_oracle(case.model).s["n_vocab"]).beg
    tokens = list(segments[0]["tokens"])
    for segment in segments[1:]:
        tokens += [beg + segment["t0"] // 2, *segment["tokens"]]
    return tokens


def _drawn(case: Case, settings: Settings, answer: Answer, temperature: float) -> tuple[float, ...] | None:
    """Distances of the random numbers that missed their token, when some decoder drew this answer; else None."""
    if not answer["segments"] or settings.initial_prompt or settings.prompt_tokens:
        return None
    tokens = _as_drawn(case, answer["segments"])
    spans = np.array(list(_spans(case, settings, tokens, temperature)))
    for seed in range(MAX_DECODERS):
        numbers = np.lib.stride_tricks.sliding_window_view(draws(seed, MOST_DRAWS + len(tokens)), len(tokens))
        missed = np.maximum(spans[:, 0] - numbers, numbers - spans[:, 1])  # below 0: inside
        row = int(np.argmin(missed.max(axis=1)))
        if missed[row].max() < BORDER:
            calls = tuple(float(miss) for miss in missed[row] if miss > 0)
            return calls if len(calls) <= MOST_CLOSE_CALLS else None
    return None
