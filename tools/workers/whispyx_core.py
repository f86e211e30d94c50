"""whispyx as a worker process, through its core. Same commands and answers as whispercpp.py."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

try:
    import whispyx  # noqa: F401
except ImportError:  # not installed: use the checkout that this file belongs to
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

import numpy as np


def peak_kb() -> int:
    """Most memory this program has held. (ru_maxrss would count what the parent held when it started us.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


class Worker:
    """One context and one state at a time, kept between commands."""

    def __init__(self) -> None:
        import whispyx.plugins

        whispyx.plugins.load()
        self.ctx: Any = None
        self.state: Any = None

    def load(self, model: str, flash_attn: bool) -> dict[str, Any]:
        from whispyx._core.context import Context

        if self.ctx is not None:
            self.state.close()
            self.ctx.close()
        start = time.perf_counter()
        self.ctx = Context.load(model, flash_attn=flash_attn)
        self.state = self.ctx.new_state()
        return {"load_s": time.perf_counter() - start}

    def full(self, samples: str, params: dict[str, Any]) -> dict[str, Any]:
        from whispyx._core.params import FullParams
        from whispyx._core.run import full

        sound = np.ascontiguousarray(np.load(samples), np.float32)
        full_params = FullParams(**params)
        start = time.perf_counter()
        result = full(self.ctx, self.state, full_params, sound)
        seconds = time.perf_counter() - start
        segments = [
            {
                "t0": s.t0,
                "t1": s.t1,
                "text_hex": s.text.hex(),
                "no_speech_prob": s.no_speech_prob,
                "tokens": [t.id for t in s.tokens],
                "tid": [t.tid for t in s.tokens],
                "p": [t.p for t in s.tokens],
            }
            for s in result.segments
        ]
        t = result.timings
        timings = {
            "encode_ms": (t.encode_ms + t.cross_ms) / max(1, t.n_encode),  # whisper.cpp counts both as one
            "decode_ms": t.decode_ms / max(1, t.n_decode),
        }
        return {
            "code": 0,
            "language": result.language,
            "segments": segments,
            "seconds": seconds,
            "timings": timings,
        }

    def rss(self) -> dict[str, Any]:
        return {"peak_kb": peak_kb()}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # anything printed by mistake must not get between the answers
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
