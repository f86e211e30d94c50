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


def both_ways(model: str, sound: str) -> dict[str, Any]:
    samples = hear(Path(sound) if sound.endswith(".wav") else sound)
    found: dict[str, Any] = {"length": len(samples) / RATE}
    with bench(model) as b:
        for name in ("without", "with"):
            segments = b.run(samples, language="en", no_timestamps=name == "without").segments
            found[name] = [[s.t0 / 100, s.t1 / 100, s.text.decode()] for s in segments]
    return found


def words(segments: list[Any]) -> list[str]:
    return re.findall(r"[a-z']+|\d+", " ".join(text for _, _, text in segments).lower())


def check_shape(found: dict[str, Any], coverage: float) -> None:
    for name in ("without", "with"):
        covered, latest = 0.0, 0.0
        for start, end, text in found[name]:
            covered += max(0.0, end - max(start, latest))
            latest = max(latest, end)
            assert text[:1] in (" ", '"', "-", "(", "["), f"{name}: a word is cut in two before {text!r}"
        assert covered >= coverage * found["length"], name


def check_passage(found: dict[str, Any], times: int) -> None:
    check_shape(found, COVERAGE)
    for name in ("without", "with"):
        said = iter(words(found[name]))
        for number, word in [*enumerate(NUMBERS, 1)] * times:  # in order: each search goes on where the last one ended
            assert any(w in (word, str(number)) for w in said), f"{name}: {word} is missing"
    counts = [sum(word in KEYWORDS for word in words(found[name])) for name in ("without", "with")]
    assert abs(counts[0] - counts[1]) <= times, counts


def test_a_passage_loses_no_sentence() -> None:
    files("base")
    check_passage(child.run(both_ways, "base", "passage"), 1)


@child.slow
def test_a_long_passage_loses_no_sentence() -> None:
    files("base")
    check_passage(child.run(both_ways, "base", "long"), 5)


def test_a_lecture_keeps_its_words() -> None:
    files("tiny.en")
    found = child.run(both_ways, "tiny.en", str(data.or_skip(data.lecture_wav)))
    check_shape(found, PAUSES)
    without, with_ = (Counter(words(found[name])) for name in ("without", "with"))
    assert (without & with_).total() >= SAME_WORDS * max(without.total(), with_.total())
