"""Threads give way while another process keeps a core busy, and come back when it is gone."""

from __future__ import annotations

from whispyx._core.cores import usable_cores
from whispyx._core.pace import plan, shares


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
