"""T06: three spoken digits do not become a hundred, and a loop is seen however short it is. (whisper.cpp #412)"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.trials import child
from tests.trials.bench import bench, files, text_of
from tests.trials.checks import transcript_of

MOST_WORDS = 12
MOST_TOKENS = 224
LOOP = 2.4  # compression ratio above which a text repeats itself (openai/whisper's threshold)
MOST_REPEATS = 6
FORCED = 24  # tokens: fewer than the 32 that whisper.cpp's entropy test needs


def digits(model: str) -> dict[str, Any]:
    with bench(model) as b:
        result = b.run("six", language="en")
        hello = b.run("hello", language="en")

        def work(timings: Any) -> int:
            return int(timings.n_decode + timings.n_batchd + timings.n_prompt)

        return {
            "text": text_of(result),
            "longest": max(len(segment.tokens) for segment in result.segments),
            "work": work(result.timings) / work(hello.timings),
        }


def test_three_digits_stay_a_few_words() -> None:
    files("tiny.en", "base")
    for model in ("tiny.en", "base"):
        found = child.run(digits, model)
        assert 1 <= len(re.findall(r"\w+", found["text"])) <= MOST_WORDS, found
        assert found["longest"] <= MOST_TOKENS
        # "Wall time under five times that of 'hello'", as decoded tokens, which no busy machine changes.
        assert found["work"] < 5, found


def looped(counts: list[int]) -> list[Any]:
    """Force one word again and again: what a model that is caught in a loop writes."""
    rows = []
    with bench("tiny.en") as b:
        six = b.ctx.vocab.tokenize(" six")[0]
        for count in counts:

            def force(tokens: list[Any], logits: Any, count: int = count) -> None:
                logits[:] = -np.inf
                logits[six if sum(token.id < b.eot for token in tokens) < count else b.eot] = 0.0

            result = b.run(
                "six", best_of=1, temperature_inc=0.0, no_timestamps=True, suppress_blank=False,
                logits_filter_callback=force,
            )  # fmt: skip
            (segment,) = transcript_of(result.segments, result.n_samples, b.eot).segments
            rows.append([count, segment.text, segment.compression_ratio, [w.verdict for w in result.windows]])
    return rows


def test_a_loop_of_few_tokens_is_seen() -> None:
    files("tiny.en")
    for count, text, ratio, verdicts in child.run(looped, [3, 6, 7, FORCED]):
        assert text == " six" * count
        assert verdicts == ["loop" if count > MOST_REPEATS else "speech"], count
        if count == FORCED:
            assert ratio > LOOP
