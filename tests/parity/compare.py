"""What two answers have in common, and what whisper.cpp's answer would be without a defect that is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tests import data
from tests.oracle import mel
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.tokens import Special
from tests.parity import sounds
from tests.parity.grid import Case
from tests.parity.times import Rules

WITHIN: Final = 1  # units of 10 ms
Answer = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """Of two answers to one case. `units` is the largest distance of times, None where segments do not correspond."""

    text: bool
    tokens: bool
    units: int | None
    where: str = ""

    @property
    def none(self) -> bool:
        return self.text and self.tokens and self.units is not None and self.units <= WITHIN


def text_of(answer: Answer) -> bytes:
    return b"".join(bytes.fromhex(segment["text_hex"]) for segment in answer["segments"])


def tokens_of(answer: Answer) -> list[int]:
    return [token for segment in answer["segments"] for token in segment["tokens"]]


def compare(case: Case, ours: Answer, theirs: Answer) -> Difference:
    """Compare text, tokens, cuts, and the times that the case asks for."""
    text, tokens = text_of(ours) == text_of(theirs), tokens_of(ours) == tokens_of(theirs)
    if ours["code"] != theirs["code"]:
        return Difference(text, tokens, None, f"ended with {ours['code']} instead of {theirs['code']}")
    if case.params.get("language") == "auto" and ours["language"] != theirs["language"]:
        return Difference(text, tokens, None, f"language {ours['language']} instead of {theirs['language']}")
    mine, other = [[segment["tokens"] for segment in answer["segments"]] for answer in (ours, theirs)]
    if mine != other:
        return Difference(text, tokens, None, _parting(ours, theirs))
    for i, (a, b) in enumerate(zip(ours["segments"], theirs["segments"], strict=True)):
        if a["text_hex"] != b["text_hex"]:
            return Difference(False, tokens, None, f"segment {i}: text cut differently")
        if a["speaker_turn_next"] != b["speaker_turn_next"]:
            return Difference(text, tokens, None, f"segment {i}: speaker turn")
    worst = max(_distances(case, ours, theirs), key=lambda found: found[0], default=(0, ""))
    return Difference(text, tokens, worst[0], worst[1] if worst[0] else "")


def _parting(ours: Answer, theirs: Answer) -> str:
    mine, other = tokens_of(ours), tokens_of(theirs)
    at = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), min(len(mine), len(other)))
    if at == len(mine) == len(other):
        return f"cut into {len(ours['segments'])} segments instead of {len(theirs['segments'])}"
    return f"token {at}: {mine[at : at + 4]} instead of {other[at : at + 4]} of {len(mine)}, {len(other)}"


def _distances(case: Case, ours: Answer, theirs: Answer) -> Iterator[tuple[int, str]]:
    names = ["token_t0", "token_t1"] if case.params.get("token_timestamps") else []
    names += ["t_dtw"] if case.aheads else []
    for i, (a, b) in enumerate(zip(ours["segments"], theirs["segments"], strict=True)):
        for name in ("t0", "t1"):
            yield abs(a[name] - b[name]), f"segment {i}: {name} {a[name]} instead of {b[name]}"
        for name in names:
            for j, (mine, other) in enumerate(zip(a[name], b[name], strict=True)):
                yield abs(mine - other), f"segment {i}, token {j}: {name} {mine} instead of {other}"


@cache
def vocabulary(model: str) -> ModelFile:
    return read_model(data.model_file(model), with_tensors=False)


@dataclass(frozen=True)
class Facts:
    """What a case fixes, whoever computes it. Times in frames of 10 ms."""

    case: Case
    special: Special
    texts: list[bytes]
    n_frames: int
    seek_start: int
    seek_end: int

    @staticmethod
    def of(case: Case) -> Facts:
        model = vocabulary(case.model)
        n_frames = mel.n_frames_of_sound(len(sounds.array(case.sound)))
        start = case.params.get("offset_ms", 0) // 10
        duration = case.params.get("duration_ms", 0) // 10
        end = min(n_frames, start + duration) if duration else n_frames
        return Facts(case, Special.of(model.settings["n_vocab"]), model.tokens, n_frames, start, end)

    def rules(self, **defects: bool) -> Rules:
        names = ("thold_pt", "thold_ptsum")
        return Rules(
            self.special, self.texts, **{n: self.case.params[n] for n in names if n in self.case.params}, **defects
        )
