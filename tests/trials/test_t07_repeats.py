"""T07: a sentence said forty times keeps all its times. (whisper.cpp #2329, #1776, #270)"""

from __future__ import annotations

from typing import Any

from tests.trials import child
from tests.trials.bench import bench, files
from tests.trials.sounds import seconds_of, wav

REPEATS = 40
FEWEST, MOST = 30, 45
ONSET_S, OF_THEM = 0.35, 0.9


def repeats(params: dict[str, Any]) -> list[Any]:
    with bench("base") as b:
        b.ctx.set_aheads(child.heads("base", b.ctx))
        result = b.run("love40", language="en", word_timestamps=True, **params)
        return [[s.text.decode(), [[w.text.decode(), w.t0, w.t1] for w in s.words]] for s in result.segments]


def check(segments: list[Any]) -> None:
    period = seconds_of(wav("love1"))
    text = "".join(text for text, _ in segments)
    assert FEWEST <= text.lower().count("love") <= MOST
    assert "".join(word for _, words in segments for word, _, _ in words) == text  # no word is without times
    onsets = [t0 for _, words in segments for word, t0, _ in words if word.strip() == "I"]
    near = [abs(t0 / period - round(t0 / period)) * period <= ONSET_S for t0 in onsets]
    assert sum(near) >= OF_THEM * len(near), [t0 for t0, ok in zip(onsets, near, strict=True) if not ok]


def test_every_repeat_has_its_times() -> None:
    files("base")
    check(child.run(repeats, {"temperature_inc": 0.0}))


@child.slow
def test_every_repeat_has_its_times_with_fallback_too() -> None:
    files("base")
    check(child.run(repeats, {}))
