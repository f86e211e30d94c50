"""Threads give way while another process keeps a core busy, and come back when it is gone."""

from __future__ import annotations

from whispyx._core.pace import plan


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
