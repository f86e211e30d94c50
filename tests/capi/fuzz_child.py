"""Calls whisper_full and the stages with whatever comes, in a process that may die. Run by test_properties.py.

fuzz_child.py MODEL COUNT      prints how often each outcome was seen, as JSON
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2]))  # last: an installed whispyx comes first

from whispyx import capi
from whispyx.errors import LanguageError, ParamsError

CODES = range(-9, 1)
STAGES = {
    "pcm_to_mel": (0, -1),
    "set_mel": (0, -1),
    "encode": (0, -1),
    "decode": (0, 1),
    "detect": (*range(100), -1, -2, -6, -7),
}
INT = st.one_of(
    st.integers(-3, 12), st.sampled_from([100, 101, 224, 448, 1500, 3000, -(2**31), 2**31 - 1]), st.integers(0, 600)
)
FLOAT = st.one_of(
    st.floats(-2, 3, width=32), st.sampled_from([0.0, -0.0, 1e-7, 1e9, -1e9, float("inf"), float("-inf"), float("nan")])
)
TEXT = st.one_of(
    st.none(), st.sampled_from(["", "en", "de", "auto", "xx", " word", "(", "[a-z]+", ".*", "🙂", b"\xff"])
)
LENGTH = st.one_of(st.integers(0, 2000), st.sampled_from([4800, 16000, 20000]))
TOKENS = st.one_of(st.none(), st.lists(st.integers(-1, 51870), max_size=300))
PLAIN = {"bool": st.booleans(), "int": INT, "float": FLOAT, "const char *": TEXT, "size_t": st.integers(0, 3)}
KEEP = {"n_threads", "print_realtime", "vad_model_path", "temperature_inc"}  # own rules below


def mostly(usual: list[Any], rare: list[Any]) -> st.SearchStrategy[Any]:
    """One of `rare` in about one of fifteen cases: more would leave few calls that get far."""
    return st.integers(0, 14).flatmap(lambda i: st.sampled_from(rare if i == 7 else usual))


@st.composite
def parameters(draw: st.DrawFn) -> Any:
    params = capi.whisper_full_default_params(draw(st.sampled_from([0, 1])))
    params.temperature_inc = draw(mostly([0.0, 0.5, -1.0, 5.0, float("nan")], [0.001]))
    params.n_threads = draw(mostly([1, 1, 2], [0, -1, 513]))
    params.beam_search.beam_size = draw(mostly([1, 2, 3, 8], [9, 0, -1]))
    params.beam_search.patience = draw(mostly([-1.0, 0.5, 1.0, 2.0], [0.0, 1e9, float("nan")]))
    params.greedy.best_of = draw(mostly([1, 2, 3, 8, 0, -1], [9]))
    names = [name for name, item in params.C_FIELDS.items() if item.c_type in PLAIN and name not in KEEP]
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=6)):
        setattr(params, name, draw(PLAIN[params.C_FIELDS[name].c_type]))
    if draw(st.integers(0, 5)) == 0:
        params.prompt_tokens, params.prompt_n_tokens = draw(TOKENS), draw(st.integers(-1, 310))
    if draw(st.integers(0, 5)) == 0:
        answers = iter(draw(st.lists(st.booleans(), max_size=30)))
        params.abort_callback = lambda data: next(answers, False)
        params.encoder_begin_callback = lambda context, state, data: not next(answers, False)
    if draw(st.integers(0, 3)) == 0:
        scale = draw(st.sampled_from([0.0, -1.0, 50.0, float("inf"), float("nan")]))

        def scaled(context: Any, state: Any, tokens: Any, n: int, logits: Any, data: Any) -> None:
            with np.errstate(all="ignore"):
                logits *= scale

        params.logits_filter_callback = scaled
    return params


def main(model: str, count: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    ctx = capi.whisper_init_from_file(model)
    assert ctx is not None
    seen: Counter[str] = Counter()
    noise = np.random.default_rng(1).normal(0, 0.1, 20000).astype(np.float32)

    @settings(max_examples=count, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(
        parameters(),
        st.one_of(st.integers(0, 2000), st.sampled_from([4800, 16000, 20000])),
        mostly([1, 1, 2, 3], [0, -1, 65]),
    )
    def run(params: Any, n: int, processors: int) -> None:
        sound = noise[:n]
        try:
            if processors <= 1 and n % 2:
                code = capi.whisper_full(ctx, params, sound, n)
            else:
                code = capi.whisper_full_parallel(ctx, params, sound, n, processors)
        except (ParamsError, LanguageError, TypeError) as error:
            seen[type(error).__name__] += 1
        else:
            assert code in CODES, code
            seen[str(code)] += 1
        end = 1 + n // 160
        for i in range(capi.whisper_full_n_segments(ctx)):
            t0, t1 = capi.whisper_full_get_segment_t0(ctx, i), capi.whisper_full_get_segment_t1(ctx, i)
            assert 0 <= t0 <= t1, (t0, t1, end)
            capi.whisper_full_get_segment_text(ctx, i)
            for j in range(capi.whisper_full_n_tokens(ctx, i)):
                capi.whisper_full_get_token_data(ctx, i, j)
        assert -1 <= capi.whisper_full_lang_id(ctx) <= 99

    @settings(max_examples=count, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.sampled_from(sorted(STAGES)), INT, INT, TOKENS, mostly([1, 2], [0, -1, 513]), LENGTH)
    def stage(name: str, a: int, b: int, tokens: Any, threads: int, n: int) -> None:
        calls = {
            "pcm_to_mel": lambda: capi.whisper_pcm_to_mel(ctx, noise[:n], n, threads),
            "set_mel": lambda: capi.whisper_set_mel(ctx, np.zeros(max(0, min(a, 999)) * 80, np.float32), a, 80),
            "encode": lambda: capi.whisper_encode(ctx, a, threads),
            "decode": lambda: capi.whisper_decode(ctx, tokens, b if a % 3 == 0 else None, a if a % 2 else 0, threads),
            "detect": lambda: capi.whisper_lang_auto_detect(ctx, a * 10 if abs(a) < 10**8 else a, threads, None),
        }
        try:
            code = calls[name]()
        except (ParamsError, TypeError) as error:
            seen[f"{name} {type(error).__name__}"] += 1
        else:
            assert code in STAGES[name], (name, code)
            seen[f"{name} {min(code, 0)}"] += 1
        assert capi.whisper_get_logits(ctx).shape[1] == capi.whisper_n_vocab(ctx)
        assert capi.whisper_n_len(ctx) >= 0

    run()
    stage()
    capi.whisper_free(ctx)
    return dict(seen)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
