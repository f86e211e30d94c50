"""Runs recognitions with the parameters it is given, one JSON line each, and says what came out.

Arguments: a model, and "core" or "capi" for what runs them. For test_properties.py.
The last line that was read when this process ends is the case that ended it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

import whispyx.plugins
from whispyx import capi
from whispyx._core.context import Context
from whispyx._core.grammar import Grammar
from whispyx._core.params import FullParams, VadParams
from whispyx._core.results import RunResult
from whispyx._core.run import full
from whispyx._core.state import State
from whispyx.errors import WhispyxError

CALLBACKS = ("progress_callback", "new_segment_callback", "encoder_begin_callback", "abort_callback",
             "logits_filter_callback")  # fmt: skip


class MineError(Exception):
    """What a callback of the test raises."""


def callback(kind: str, seen: list[Any]) -> Any:
    def call(*args: Any) -> bool:
        seen.append(args)
        if kind == "raise":
            raise MineError
        return kind == "true"

    return call


def sound_of(case: dict[str, Any]) -> Any:
    rng = np.random.default_rng(case["n_samples"])
    noise = rng.normal(0, 0.1, case["n_samples"]).astype(np.float32)
    if case["sound"] == "zeros":
        noise[:] = 0
    elif case["sound"] in ("nan", "inf") and len(noise):
        noise[len(noise) // 2] = float(case["sound"])
    elif case["sound"] == "loud":
        noise *= 1e30
    return noise


def wrong_result(result: RunResult, case: dict[str, Any], progress: list[Any]) -> str:
    """Say what is wrong with a result; nothing: it is sound."""
    last = 0
    length = -(-case["n_samples"] // 160)
    for segment in result.segments:
        if not 0 <= segment.t0 <= segment.t1 <= length:
            return f"segment from {segment.t0} to {segment.t1} in {length} cs of sound"
        if segment.t0 < last:
            return f"a segment begins at {segment.t0}, the one before at {last}"
        last = segment.t0
        for token in segment.tokens:
            if not 0.0 <= token.p <= 1.0 + 1e-4 or not token.plog <= 1e-4:
                return f"token {token.id} has the probability {token.p}"
    if any(not 0 <= done <= 100 for (done,) in progress):
        return f"progress {progress}"
    return ""


def attempt(ctx: Context, state: State, case: dict[str, Any]) -> dict[str, str]:
    values = dict(case["params"])
    seen: dict[str, list[Any]] = {name: [] for name in CALLBACKS}
    try:
        if isinstance(values.get("grammar"), str):
            values["grammar"] = Grammar.from_gbnf(values["grammar"])
        if isinstance(values.get("vad_params"), dict):
            values["vad_params"] = VadParams(**values["vad_params"])
        for name in CALLBACKS:
            if values.get(name) in ("raise", "true", "false"):
                values[name] = callback(values[name], seen[name])
        result = full(ctx, state, FullParams(**values), sound_of(case))
    except WhispyxError as error:
        return {"outcome": type(error).__name__, "message": str(error)}
    except MineError:
        return {"outcome": "raised", "message": ""}
    except Exception as error:
        return {"outcome": "wrong error", "message": f"{type(error).__name__}: {error}"}
    wrong = wrong_result(result, case, seen["progress_callback"])
    return {"outcome": "wrong result" if wrong else "done", "message": wrong}


def attempt_capi(ctx: Any, case: dict[str, Any]) -> dict[str, str]:
    """The same through whisper_full. A value that no C struct could hold is refused when it is set."""
    values, seen = dict(case["params"]), []
    strategy = {"beam_search": capi.WHISPER_SAMPLING_BEAM_SEARCH}.get(
        str(values.pop("strategy", "")), capi.WHISPER_SAMPLING_GREEDY
    )
    try:
        params = capi.whisper_full_default_params(strategy)
        for name, value in values.items():
            target: Any = params
            if name == "best_of":
                target = params.greedy
            elif name in ("beam_size", "patience"):
                target = params.beam_search
            elif name == "grammar":
                name = "grammar_rules"
                value = Grammar.from_gbnf(value) if isinstance(value, str) else value
            elif name == "vad_params" and isinstance(value, dict):
                for inner, number in value.items():
                    setattr(params.vad_params, inner, number)
                continue
            elif name == "prompt_tokens" and isinstance(value, list):
                params.prompt_n_tokens = len(value)
            if value in ("raise", "true", "false") and name in CALLBACKS:
                value = callback(value, seen)
            if hasattr(target, name):
                setattr(target, name, value)
    except (WhispyxError, TypeError, OverflowError) as error:
        return {"outcome": "not set", "message": str(error)}
    try:
        status = capi.whisper_full(ctx, params, sound_of(case))
        for i in range(capi.whisper_full_n_segments(ctx)):
            t0, t1 = capi.whisper_full_get_segment_t0(ctx, i), capi.whisper_full_get_segment_t1(ctx, i)
            if not 0 <= t0 <= t1 <= -(-case["n_samples"] // 160):
                return {"outcome": "wrong result", "message": f"segment from {t0} to {t1}"}
            capi.whisper_full_get_segment_text(ctx, i)
            for k in range(capi.whisper_full_n_tokens(ctx, i)):
                capi.whisper_full_get_token_data(ctx, i, k)
    except WhispyxError as error:
        return {"outcome": type(error).__name__, "message": str(error)}
    except MineError:
        return {"outcome": "raised", "message": ""}
    except Exception as error:
        return {"outcome": "wrong error", "message": f"{type(error).__name__}: {error}"}
    return {"outcome": f"status {status}", "message": "whisper_full"}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # print_realtime writes there
    model, face = sys.argv[1:]
    whispyx.plugins.load()
    np.seterr(all="ignore")
    if face == "capi":
        c_ctx = capi.whisper_init_from_file_with_params(model, capi.whisper_context_default_params())
    else:
        ctx = Context.load(model)
        state = State(ctx)
    for line in sys.stdin:
        case = json.loads(line)
        answer = attempt_capi(c_ctx, case) if face == "capi" else attempt(ctx, state, case)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
