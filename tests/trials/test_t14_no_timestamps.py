"""T14: without timestamps nothing is lost. (whisper.cpp #2186, #2312; OpenWhispr #2150)

The tiny model does not understand the synthetic passage without timestamps; a lecture is its sound.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests import data
from tests.trials import child
from tests.trials.bench import bench, files, hear
from tests.trials.checks import RATE
from tests.trials.sounds import KEYWORDS, NUMBERS

COVERAGE = 0.97
PAUSES = 0.85  # of the lecture: its speaker makes pauses, which timestamps leave out
SAME_WORDS = 0.85  # of the lecture's words, in both modes


def recognise(model: str, sound: str, ways: list[str]) -> dict[str, Any]:
    """Segments with and without timestamps: start, end, text."""
    samples = hear(Path(sound) if sound.endswith(".wav") else sound)
    found: dict[str, Any] = {"length": len(samples) / RATE}
    with bench(model) as b:
        for name in ways:
            segments = b.run(samples, language="en", no_timestamps=name == "without").segments
            found[name] = [[s.t0 / 100, s.t1 / 100, s.text.decode()] for s in segments]
    return found


def words(segments: list[Any]) -> list[str]:
    return re.findall(r"[a-z']+|\d+", " ".join(text for _, _, text in segments).lower())


def check_shape(found: dict[str, Any], coverage: float) -> None:
    for name in found.keys() - {"length"}:
        covered, latest = 0.0, 0.0
        for start, end, text in found[name]:
            covered += max(0.0, end - max(start, latest))
            latest = max(latest, end)
            assert text[:1] in (" ", '"', "-", "(", "["), f"{name}: a word is cut in two before {text!r}"
        assert covered >= coverage * found["length"], name


def numbers_in_order(segments: list[Any], times: int) -> int:
    """How many of the passage's sentence numbers are there, in their order."""
    value = {name: i for i, word in enumerate(NUMBERS, 1) for name in (word, str(i))}
    said = [value[word] for word in words(segments) if word in value]
    expected = [*range(1, len(NUMBERS) + 1)] * times
    longest = [0] * (len(said) + 1)  # common subsequence with the first words of `said`
    for number in expected:
        before = longest[:]
        for i, word in enumerate(said, 1):
            longest[i] = before[i - 1] + 1 if word == number else max(before[i], longest[i - 1])
    return longest[-1]


def keywords(segments: list[Any]) -> int:
    return sum(word in KEYWORDS for word in words(segments))


def test_a_passage_loses_no_sentence() -> None:
    files("base")
    found = child.run(recognise, "base", "passage", ["without", "with"])
    check_shape(found, COVERAGE)
    assert [numbers_in_order(found[name], 1) for name in ("without", "with")] == [15, 15]
    assert abs(keywords(found["without"]) - keywords(found["with"])) <= 1


@child.slow
def test_a_long_passage_loses_next_to_nothing() -> None:
    """Every 30 s the sound is cut, wherever that is: without timestamps nothing tells where a word ends."""
    files("base")
    found = child.run(recognise, "base", "long", ["without"])
    check_shape(found, COVERAGE)
    n_cuts = int(found["length"] // 30)
    assert numbers_in_order(found["without"], 5) >= 75 - n_cuts
    assert abs(keywords(found["without"]) - 75) <= n_cuts


def test_a_lecture_keeps_its_words() -> None:
    files("tiny.en")
    found = child.run(recognise, "tiny.en", str(data.or_skip(data.lecture_wav)), ["without", "with"])
    check_shape(found, PAUSES)
    without, with_ = (Counter(words(found[name])) for name in ("without", "with"))
    assert (without & with_).total() >= SAME_WORDS * max(without.total(), with_.total())
