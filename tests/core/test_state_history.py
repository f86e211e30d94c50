"""A state that did something else before finds exactly what a fresh one finds: every feature after every other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from tests.oracle.vad_model import SmallSilero
from whispyx._core import steps
from whispyx._core.grammar import Grammar
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams, VadParams
from whispyx._core.state import State

SOUND = np.random.default_rng(3).normal(0, 0.1, 16000 * 3).astype(np.float32)
UNLIKELY = {"entropy_thold": 1e6, "logprob_thold": 0.0, "no_speech_thold": 10.0, "temperature_inc": 0.4}
WORDS = {"dtw": True, "word_timestamps": True, "token_timestamps": True}


class MineError(Exception):
    """What a callback of the test raises."""


def fail(tokens: list[Any], row: Any) -> None:
    if len(tokens) == 2:
        raise MineError


def everything(result: Any) -> Any:
    """All that a result says."""
    return [
        (s.t0, s.t1, s.text, s.no_speech_prob, s.avg_logprob, s.temperature,
         [(t.id, t.p, t.pt, t.ptsum, t.t0, t.t1, t.t_dtw, t.t_dtw_end) for t in s.tokens],
         [(w.text, w.t0, w.t1) for w in s.words])
        for s in result.segments
    ] + [result.language, result.vad_segments]  # fmt: skip


def stages(state: State) -> Any:
    state.pcm_to_mel(SOUND[:9000])
    state.encode(0, 1, 30)
    steps.reserve(state, 3)
    for sequence in range(state.n_decoders):  # other sequences change the order of sums
        steps.seq_rm(state, sequence)
    steps.prefill(state, [50258, 5, 6])
    steps.seq_cp(state, 0, 2)
    return steps.step(state, [9, 8], [0, 2]).tolist()


def features(voice: Path) -> dict[str, Callable[[State], Any]]:
    def job(parts: int = 1, samples: Any = SOUND, **fields: Any) -> Callable[[State], Any]:
        def run(state: State) -> Any:
            params = FullParams(**{"n_threads": 1, "temperature_inc": 0.0, **fields})
            try:
                return everything(full_parallel(state.ctx, state, params, samples, parts))
            except MineError:
                return "raised"

        return run

    heard = {"vad": True, "vad_model_path": str(voice), "vad_params": VadParams(threshold=0.3)}
    return {
        "greedy": job(),
        "beams": job(strategy="beam_search", beam_size=8, patience=2.0),
        "temperatures": job(strategy="beam_search", best_of=3, **UNLIKELY),
        "words": job(max_len=9, **WORDS),
        "speech": job(**heard, **WORDS),
        "silence": job(samples=np.zeros(16000, np.float32), **heard),
        "parts": job(parts=2, **heard),
        "short window": job(audio_ctx=21, dtw=True),
        "grammar": job(grammar=Grammar.from_gbnf('root ::= " "? [a-z ]+ "."'), suppress_regex="[a-f]+"),
        "prompt": job(initial_prompt="hello there", carry_initial_prompt=True, no_context=False),
        "language": job(language=None, offset_ms=1000),
        "failure": job(logits_filter_callback=fail),
        "nothing": job(samples=SOUND[:0]),
        "stages": stages,
    }


def test_no_feature_changes_what_the_next_one_finds(tmp_path: Path) -> None:
    voice = tmp_path / "voice.bin"
    voice.write_bytes(SmallSilero().to_bytes())
    jobs = features(voice)
    wrong = []
    with pair(TinyModel(n_vocab=51865)).context(True) as ctx:
        ctx.set_aheads([(1, 0), (2, 1)])
        alone = {}
        for name, job in jobs.items():
            with ctx.new_state() as state:
                alone[name] = job(state)
        assert len({str(found) for found in alone.values()}) >= 11, "features that all find the same show nothing"
        for before in jobs:
            for name, job in jobs.items():
                if name == "prompt":
                    continue  # no_context off: it goes on from the text before, as asked
                with ctx.new_state() as state:
                    jobs[before](state)
                    if job(state) != alone[name]:
                        wrong.append((before, name))
    assert wrong == []
