"""What the machine gives in this run: peaks of its dot products, read bandwidth, and the memory regime."""

from __future__ import annotations

import ctypes as c
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("machine.c")
FAR_NS = 120.0
"""Two cores that share a cache hand a word over in less; on the machines that we know, 40-70 against 190-205."""
SWEPT_MB = 100
"""About what a token of base reads in f16: partly cached, as its weights are."""
PEAK_SECONDS = 0.1
TYPES = ("f32", "bf16", "int8")


@dataclass(frozen=True)
class Machine:
    """Rates per second; absent where they cannot be measured here."""

    cpu: str
    n_cpus: int
    threads: int
    peaks: dict[str, float] = field(default_factory=dict)
    kernels: str = ""
    read_gb_s: float | None = None


@cache
def _helper() -> Any:
    """The compiled machine.c, or None without a compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="whispyx-bench-"))
    try:
        library = folder / "machine.so"
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-o", str(library), str(SOURCE)]
        if subprocess.run(command, capture_output=True).returncode:
            return None
        lib = c.CDLL(str(library))
    finally:
        shutil.rmtree(folder)  # what is loaded stays
    lib.one_way_ns.restype = lib.read_rate.restype = c.c_double
    lib.one_way_ns.argtypes = [c.c_int, c.c_int]
    lib.read_rate.argtypes = [c.POINTER(c.c_int), c.c_int, c.c_size_t, c.c_int]
    return lib


def one_way_ns() -> float | None:
    """How long a word takes from one core to another; None with one core, or without a compiler."""
    cpus, lib = sorted(os.sched_getaffinity(0)), _helper()
    if lib is None or len(cpus) < 2:
        return None
    found: float = lib.one_way_ns(cpus[0], cpus[1])
    return found or None


def regime(ns: float | None) -> str:
    """In words: "same" when both cores share a cache, "split" when they do not."""
    return "not known" if ns is None else f"{'split' if ns > FAR_NS else 'same'} ({ns:.0f} ns)"


def read_gb_s(threads: int, megabytes: int = SWEPT_MB, rounds: int = 20) -> float | None:
    """Read bandwidth of some threads together."""
    cpus, lib = sorted(os.sched_getaffinity(0)), _helper()
    if lib is None:
        return None
    threads = min(threads, len(cpus))
    found: float = lib.read_rate((c.c_int * threads)(*cpus[:threads]), threads, megabytes << 20, rounds)
    return found / 1e9 or None


def peaks(threads: int) -> tuple[str, dict[str, float]]:
    """Name of the kernel library, and what its dot products reach on `threads` threads together, operations/s.

    The plugins must have been loaded.
    """
    from whispyx._core import kernels

    name = kernels.name()
    if name is None:
        return "", {}
    found = {}
    with ThreadPoolExecutor(threads) as pool:
        for kind in TYPES:
            rates = list(pool.map(partial(kernels.peak, kind), [PEAK_SECONDS] * threads))
            if min(rates) > 0:
                found[kind] = sum(rates)
    return name, found


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def look(threads: int) -> Machine:
    """Measure it; takes about a second."""
    name, rates = peaks(threads)
    return Machine(cpu_name(), len(os.sched_getaffinity(0)), threads, rates, name, read_gb_s(threads))
