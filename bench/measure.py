"""One measurement: an engine in a fresh process loads a model and transcribes a recording."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools import peers
from tools.workers import client

LOADS = 6
Start = Callable[[], client.Worker]


@dataclass(frozen=True)
class Figures:
    """What one round of one engine on one recording took. Times in ms (`seconds`: s), memory in MiB."""

    load_ms: float
    seconds: float
    encode_ms: float
    decode_ms: float
    peak_mib: float
    n_tokens: int

    @staticmethod
    def median(rounds: list[Figures]) -> Figures:
        pick = {name: statistics.median(getattr(r, name) for r in rounds) for name in Figures.__dataclass_fields__}
        return Figures(**{**pick, "n_tokens": rounds[0].n_tokens})


class MissingPeer(Exception):
    """An engine to compare with has not been set up."""


def engines(native: bool, compute: str = "auto") -> dict[str, Start]:
    """How to start each engine: whispyx, and whisper.cpp built for this CPU (or its portable wheel)."""
    python = peers.python("pywhispercpp", native)
    if python is None:
        flag = "--native " if native else ""
        raise MissingPeer(f"whisper.cpp is not set up: python tools/peers.py {flag}pywhispercpp")
    ours = {"load": {"compute": compute}}
    return {"whispyx": lambda: client.whispyx(defaults=ours), "whisper.cpp": lambda: client.whispercpp(python)}


@contextmanager
def as_array(sound: Path) -> Iterator[str]:
    """The samples of a 16 kHz mono recording in a file that every worker can read."""
    import soundfile

    samples, rate = soundfile.read(sound, dtype="float32")
    if rate != 16000 or samples.ndim != 1:
        raise ValueError(f"{sound}: {rate} Hz, {samples.ndim} dimensions; 16000 Hz mono is needed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sound.npy"
        np.save(path, samples)
        yield str(path)


def measure(start: Start, model: str, samples: str, params: dict[str, Any], flash_attn: bool, warm: int) -> Figures:
    """Run one engine in a process of its own. The first `warm` transcriptions are not counted."""
    with start() as worker:
        # the first load warms up the process and the page cache
        loads = [worker("load", model=model, flash_attn=flash_attn)["load_s"] for _ in range(LOADS)]
        for _ in range(warm):
            worker("full", samples=samples, params=params)
        result = worker("full", samples=samples, params=params)
        # several loads may leave more behind than one: peak memory comes from a process that does one thing
    with start() as worker:
        worker("load", model=model, flash_attn=flash_attn)
        worker("full", samples=samples, params=params)
        peak = worker("rss")["peak_kb"]
    return Figures(
        load_ms=statistics.median(loads[1:]) * 1e3,
        seconds=result["seconds"],
        encode_ms=result["timings"]["encode_ms"],
        decode_ms=result["timings"]["decode_ms"],
        peak_mib=peak / 1024,
        n_tokens=sum(len(segment["tokens"]) for segment in result["segments"]),
    )


def at_least_one(text: str) -> int:
    """Type of an argument that counts something."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def default_threads() -> int:
    return min(4, len(os.sched_getaffinity(0)))


def load_warning() -> str | None:
    """A line to print when the machine is not quiet; figures taken then mean little."""
    busy = os.getloadavg()[0]
    return f"load average is {busy:.1f}: the machine is not quiet" if busy > 0.5 else None
