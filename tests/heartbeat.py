"""A thread that ticks every 10 ms: what a program's other threads get while something runs."""

from __future__ import annotations

import hashlib
import threading
import time
from types import TracebackType

TICK_S = 0.01
WANTED_PER_S = 80.0  # of 100: on an idle machine
OF_THE_POSSIBLE = 0.8  # where the machine is busy, of what the same thread gets beside threads that hold no lock


class Heartbeat:
    """Counts ticks while the block runs.

    Attributes
    ----------
    rate : float
        Ticks per second, after the block.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self._n = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        while not self._stop.is_set():
            time.sleep(TICK_S)
            self._n += 1

    def __enter__(self) -> Heartbeat:
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *details: type[BaseException] | BaseException | TracebackType | None) -> None:
        n, took = self._n, time.perf_counter() - self._began
        self._stop.set()
        self._thread.join()
        self.rate = n / took


def possible(n_threads: int, seconds: float = 1.0) -> float:
    """Ticks per second beside `n_threads` threads that compute without the interpreter's lock."""
    block = b"x" * (8 << 20)  # hashlib releases the lock for blocks of more than 2 kB
    end = time.perf_counter() + seconds

    def compute() -> None:
        while time.perf_counter() < end:
            hashlib.sha256(block).digest()

    threads = [threading.Thread(target=compute) for _ in range(n_threads)]
    with Heartbeat() as beat:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return beat.rate


def wanted(n_threads: int) -> float:
    """The rate below which something else held the interpreter's lock."""
    return min(WANTED_PER_S, OF_THE_POSSIBLE * possible(n_threads))
