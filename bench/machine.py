"""What the machine gives in this run: peaks of its dot products, read bandwidth, and the memory regime."""

from __future__ import annotations

import ctypes as c
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("machine.c")
KERNELS = Path(__file__).resolve().parents[1] / "whispyx" / "_native" / "kernels"
FAR_NS = 120.0
"""Two cores that share a cache hand a word over in less; on the machines that we know, 40-70 against 190-205."""
SWEPT_MB = 100
"""About what a token of base reads in f16: partly cached, as its weights are."""
PEAK_SECONDS = 0.1
TYPES = {"f32": 0, "bf16": 2, "int8": 3}  # WX_F32, WX_BF16, WX_I8


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


class _Kernels(c.Structure):
    """The head of `wx_kernels` (see whispyx_kernels.h); the functions in between are not called from here."""

    _fields_ = (
        ("abi", c.c_uint32),
        ("size", c.c_uint32),
        ("name", c.c_char_p),
        ("bf16", c.c_char_p),
        ("i8", c.c_char_p),
        ("others", c.c_void_p * 11),
        ("peak", c.CFUNCTYPE(c.c_double, c.c_int32, c.c_double)),
    )


def best_kernels(folder: Path = KERNELS) -> Any:
    """The table of functions of the kernel library that suits this machine best, or None."""
    found: list[tuple[int, Any]] = []
    for path in sorted(folder.glob("*.so*")) if folder.is_dir() else ():
        try:
            lib = c.CDLL(str(path))
            score, table = lib.whispyx_kernels_score(), lib.whispyx_kernels
        except (OSError, AttributeError):
            continue
        table.restype = c.POINTER(_Kernels)
        if score > 0:
            found.append((score, table))
    if not found:
        return None
    kernels = max(found, key=lambda pair: pair[0])[1]().contents
    # another layout has its `peak` elsewhere
    return kernels if kernels.size == c.sizeof(_Kernels) else None


def peaks(threads: int) -> tuple[str, dict[str, float]]:
    """The kernel library's name and what its dot products reach on `threads` threads together, operations/s."""
    kernels = best_kernels()
    if kernels is None:
        return "", {}
    found = {}
    for name, number in TYPES.items():
        rates: list[float] = []

        def one(number: int = number, rates: list[float] = rates) -> None:
            rates.append(kernels.peak(number, PEAK_SECONDS))

        workers = [threading.Thread(target=one) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if min(rates) > 0:
            found[name] = sum(rates)
    return kernels.name.decode(), found


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
