"""Does one thing many times and prints how much memory it holds, as JSON. Run by test_memory.py.

memory_child.py transcribe MODEL SAMPLES.npy COUNT      resident kB after each transcription
memory_child.py models MODEL COUNT                      resident kB before and after COUNT models
memory_child.py limited MODEL                           how jobs with ever more memory end, and those after them
"""

from __future__ import annotations

import ctypes
import gc
import json
import resource
import sys
from typing import Any

import numpy as np

import whispyx.plugins
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx._core.state import State
from whispyx.errors import ComputeMemoryError


def resident_kb() -> int:
    """Memory in use, after the allocator has been asked to give back what it keeps in store."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def transcribe(model: str, samples: str, count: str) -> list[int]:
    sound = np.load(samples)
    params = FullParams(n_threads=2, temperature_inc=0.0, language="en")
    out = []
    with Context.load(model) as ctx, ctx.new_state() as state:
        for _ in range(int(count)):
            full(ctx, state, params, sound)
            out.append(resident_kb())
    return out


def models(model: str, count: str) -> list[int]:
    def once() -> None:
        with Context.load(model) as ctx, ctx.new_state() as state:
            full(ctx, state, FullParams(n_threads=2, temperature_inc=0.0), np.zeros(16000, np.float32))

    once()  # code, thread stacks and tables that are set up once
    out = [resident_kb()]
    for _ in range(int(count)):
        once()
        out.append(resident_kb())
    return out


def limited(model: str) -> list[list[str]]:
    """Ask for many decoders, all logits or alignment with 0, 1/2, 1, … MiB left, then for the same with plenty.

    Of each job and limit: how the first ended, and whether the second one found what a fresh state finds.
    """
    page = resource.getpagesize()
    sound = np.random.default_rng(1).normal(0, 0.1, 32000).astype(np.float32)
    plenty = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def job(state: State, kind: str) -> Any:
        if kind == "logits":
            state.pcm_to_mel(sound)
            state.encode()
            state.decode(range(300), all_logits=True)
            return state.logits()[-1].tolist()
        fields: dict[str, Any] = {"beams": {"strategy": "beam_search", "beam_size": 8}, "words": {"dtw": True}}[kind]
        result = full(state.ctx, state, FullParams(n_threads=1, temperature_inc=0.0, **fields), sound)
        return [(s.t0, s.t1, s.text, [(t.id, t.plog, t.t_dtw) for t in s.tokens]) for s in result.segments]

    out = []
    with Context.load(model) as ctx:
        ctx.set_aheads([(layer, head) for layer in range(3) for head in range(2)])
        for kind in ("beams", "logits", "words"):
            with ctx.new_state() as state:
                expected = job(state, kind)
            for half_mib in range(12):
                with ctx.new_state() as state:
                    resident_kb()  # what the allocator keeps in store would be room, too
                    with open("/proc/self/statm") as sizes:
                        used = int(sizes.read().split()[0]) * page
                    resource.setrlimit(resource.RLIMIT_AS, (used + half_mib * 2**19, plenty[1]))
                    try:
                        ended = "done" if job(state, kind) == expected else "something else"
                    except (ComputeMemoryError, MemoryError) as error:
                        ended = type(error).__name__
                    finally:
                        resource.setrlimit(resource.RLIMIT_AS, plenty)
                    out.append([kind, ended, "same" if job(state, kind) == expected else "other"])
    return out


if __name__ == "__main__":
    whispyx.plugins.load()
    print(json.dumps({"transcribe": transcribe, "models": models, "limited": limited}[sys.argv[1]](*sys.argv[2:])))
