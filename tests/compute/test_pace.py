"""Threads give way while another process keeps a core busy, and come back when it is gone."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.core.tiny import pair, recipe_of
from tests.oracle.tiny_model import speechlike
from whispyx._core.context import Context
from whispyx._core.cores import usable_cores
from whispyx._core.pace import plan, shares, working
from whispyx._core.params import FullParams
from whispyx._core.run import FullRun
from whispyx._core.state import State
from whispyx.plugins import kernels, load

PAUSE_S = 0.05  # the core asks whether to stop every 20 ms at most


def test_nobody_in_the_way_leaves_all_threads() -> None:
    assert plan(4, lambda i, used: 0 if i < 50 else None) == [4] * 50


def test_one_run_that_waits_changes_nothing() -> None:
    assert plan(2, lambda i, used: (i % 5 == 0) if i < 50 else None) == [2] * 50


def test_a_core_that_is_taken_leaves_out_one_thread() -> None:
    used = plan(4, lambda i, used: (used > 3) if i < 400 else None)
    assert used[:3] == [4, 4, 3]
    assert set(used) == {3, 4}
    assert used.count(4) < 12  # it is tried again, less and less often


def test_threads_come_back_when_the_core_is_free() -> None:
    used = plan(4, lambda i, used: (used > 2 and i < 100) if i < 600 else None)
    assert 2 in used[:100]
    assert used[-100:] == [4] * 100


def test_one_thread_stays() -> None:
    assert set(plan(2, lambda i, used: 1 if i < 300 else None)) == {1, 2}
    assert plan(1, lambda i, used: 1 if i < 30 else None) == [1] * 30


def test_jobs_that_run_at_the_same_time_share_the_cores() -> None:
    cores = usable_cores()
    assert shares(7, 1) == 7  # alone: what was asked for
    assert shares(cores, 2) == max(1, cores // 2)
    assert shares(4 * cores, 3) == max(1, cores // 3)
    assert shares(1, 5) == 1
    assert shares(3, 1) == 3  # nothing is left of those that have ended


def test_several_jobs_in_one_process_never_use_more_threads_than_there_are_cores() -> None:
    """All jobs are held inside a graph at the same time, and the threads that they were given are counted."""
    load()
    if not any(record.score for record in kernels.records()):
        pytest.skip("no kernels for this machine")
    cores = usable_cores()
    sound = speechlike(3.0, seed=3)
    with Context.load(str(pair(recipe_of("f16")).path), compute="f32") as ctx:
        for n_jobs in sorted({1, 2, 3, cores + 1}):
            begun, inside, left = (threading.Barrier(n_jobs, timeout=60) for _ in range(3))
            found: list[int] = []

            def job(begun: Any = begun, inside: Any = inside, left: Any = left, found: list[int] = found) -> None:
                stage = ["start"]

                def begin() -> bool:
                    begun.wait()  # from here on every job knows of all the others
                    time.sleep(PAUSE_S)  # so that the next question comes with the next graph
                    stage[0] = "begun"
                    return True

                def stop() -> bool:
                    if stage[0] == "begun":
                        stage[0] = "counted"
                        inside.wait()
                        found.append(working())
                        left.wait()
                    return False

                with State(ctx) as state:
                    params = FullParams(n_threads=2, encoder_begin_callback=begin, abort_callback=stop)
                    FullRun(ctx, state, params, sound).run()

            threads = [threading.Thread(target=job) for _ in range(n_jobs)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            each = 2 if n_jobs == 1 else max(1, min(2, cores // n_jobs))  # one must do, with more jobs than cores
            assert found == [n_jobs * each] * n_jobs
            assert working() == 0
