"""T11: the same input and seed give the same output, in whatever order and process. (whisper.cpp #734, PR #4025)"""

from __future__ import annotations

import hashlib
from typing import Any

from tests.trials import child
from tests.trials.bench import files, hear
from tests.trials.checks import RATE, check_transcript
from whispyx import Model

SAMPLED = {"temperature": 0.8, "best_of": 5}


def outputs(seconds: float, plan: list[list[Any]]) -> list[Any]:
    """Recognise clips in the order of the plan (clip, seed or None); a digest of texts, tokens and times of each."""
    rows = []
    with Model(str(child.model("base"))) as model:
        for clip, seed in plan:
            samples = hear(clip)[: int(seconds * RATE)]
            seeded = {} if seed is None else {"seed": seed}
            transcript = model.transcribe(samples, "en", **SAMPLED, **seeded)
            check_transcript(transcript)
            digest = hashlib.sha256(repr(transcript.segments).encode()).hexdigest()
            rows.append([clip, seed, transcript.options.seed, digest])
    return rows


def check(seconds: float) -> None:
    plan = [["noisy", None]] * 2 + [["hello", None], ["noisy", None], ["noisy", 7]]
    rows = child.run(outputs, seconds, plan) + child.run(outputs, seconds, [["noisy", 7]])
    digests: dict[Any, set[str]] = {}
    for clip, seed, stored, digest in rows:
        assert stored == (seed or 0)  # the seed is stored in the result
        digests.setdefault((clip, seed), set()).add(digest)
    assert {key: len(found) for key, found in digests.items()} == dict.fromkeys(digests, 1)
    assert digests["noisy", None] != digests["noisy", 7]  # otherwise nothing was sampled


def test_the_same_seed_gives_the_same_output_in_any_order_and_process() -> None:
    files("base")
    check(5.0)


@child.slow
def test_the_same_seed_gives_the_same_output_over_several_windows() -> None:
    files("base")
    check(32.0)
