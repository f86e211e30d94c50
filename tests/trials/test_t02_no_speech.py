"""T02: the no-speech probability is that of the start-of-transcript row, with a prompt too. (whisper.cpp #4046)"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trials import child
from tests.trials.bench import Bench, bench, files, hear
from whispyx.languages import lang_id

PROMPT = "Glossary: alpha, beta."
CLIPS = {"hello": (None, PROMPT), "sil10": (None,), "speech_then_sil30": (PROMPT,)}
TOLERANCE = 1e-3  # of a probability: sums in another order
FRAMES_PER_WINDOW = 3000


def by_hand(b: Bench, clip: str, prompt: str | None, seek: int) -> float:
    """Encode, decode the prompt, read the no-speech token in the softmax of the row of the start of transcript."""
    vocab = b.ctx.vocab
    earlier = [vocab.prev, *vocab.tokenize(prompt)] if prompt else []
    tokens = [*earlier, vocab.sot, vocab.lang_token(lang_id("en")), vocab.transcribe]
    with b.ctx.new_state() as state:
        state.pcm_to_mel(hear(clip))
        state.encode(seek, n_threads=2)
        state.decode(tokens, n_threads=2, all_logits=True)
        row = np.asarray(state.logits(), np.float64).reshape(-1, vocab.n_vocab)[len(earlier)]
    row = np.exp(row - row.max())
    return float(row[vocab.nosp] / row.sum())


def measure() -> list[Any]:
    rows = []
    with bench("base") as b:
        for clip, prompts in CLIPS.items():
            for prompt in prompts:
                result = b.run(clip, n_threads=2, temperature_inc=0.0, initial_prompt=prompt, logprob_thold=-1e5)
                found = {}
                for segment in result.segments:
                    # The last 5 s of a recording are recognised without earlier text.
                    seek = FRAMES_PER_WINDOW * (segment.t0 >= FRAMES_PER_WINDOW)
                    found[seek] = [segment.no_speech_prob, by_hand(b, clip, prompt if seek == 0 else None, seek)]
                rows.append([clip, prompt, list(found.values())])
        kept = b.run("hello", temperature_inc=0.0)
        dropped = b.run("hello", temperature_inc=0.0, no_speech_thold=0.0, logprob_thold=0.0)
        rows.append([len(kept.segments), len(dropped.segments), [window.verdict for window in dropped.windows]])
    return rows


def test_B8_the_no_speech_probability_is_what_one_finds_by_hand() -> None:
    files("base")
    *rows, (kept, dropped, verdicts) = child.run(measure)
    first = {}
    for clip, prompt, windows in rows:
        assert windows, (clip, prompt)
        for ours, by_hand_ in windows:
            assert abs(ours - by_hand_) < TOLERANCE, f"{clip}, prompt {prompt!r}: {ours}, by hand {by_hand_}"
            first.setdefault((clip, prompt), ours)
    assert first["hello", None] < 0.3 and first["sil10", None] >= 10 * first["hello", None]
    # With both tests always true the window is left out, and the result says so.
    assert kept > 0 and dropped == 0 and verdicts == ["no_speech"]
