"""T05: one short word is one short segment. (whisper.cpp #2065; godot-whisper#79)

The models take the synthetic "Down." for other words ("out"), so "Stop." is the word that is also compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trials import child
from tests.trials.bench import bench, files, hear
from tests.trials.checks import RATE

WORD_S = 0.6


def one_word(model: str, word: str) -> dict[str, Any]:
    sound = hear(word)
    with bench(model) as b:
        short = b.run(sound, language="en")
        padded = b.run(np.concatenate([sound, np.zeros(RATE, np.float32)]), language="en")
    return {
        "segments": [[s.text.decode(), s.t0 / 100, s.t1 / 100] for s in short.segments],
        "padded": [s.text.decode() for s in padded.segments],
    }


def test_one_word_is_one_segment_that_ends_with_the_sound() -> None:
    files("tiny.en", "base")
    for model, word in (("tiny.en", "stop"), ("base", "stop"), ("tiny.en", "down"), ("base", "down")):
        found = child.run(one_word, model, word)
        ((text, _, end),) = found["segments"]
        assert end <= WORD_S + 0.02, (model, found)
        if word == "stop":
            assert text.strip().strip(".!?").lower() == word, (model, found)
            assert [padded.strip(" .!?") for padded in found["padded"]] == [text.strip(" .!?")], (model, found)
