"""Does one thing many times and prints how much memory it holds, as JSON. Run by test_memory.py.

memory_child.py transcribe MODEL SAMPLES.npy COUNT      resident kB after each transcription
memory_child.py models MODEL COUNT                      resident kB before and after COUNT models
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys

import numpy as np

import whispyx.plugins
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full


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


if __name__ == "__main__":
    whispyx.plugins.load()
    print(json.dumps({"transcribe": transcribe, "models": models}[sys.argv[1]](*sys.argv[2:])))
