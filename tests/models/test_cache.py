"""Cached files are trusted as long as they are what was recorded; one process at a time makes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from whispyx.errors import ModelError
from whispyx.models import cache

CHILD = """
import sys
from pathlib import Path
from whispyx.models.cache import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.readline()
"""


def cached_file(folder: Path, content: bytes = b"content") -> Path:
    path = folder / "file"
    path.write_bytes(content)
    cache.remember(path, cache.sha256_of(path), "a test")
    return path


def later(path: Path) -> None:
    """Give the file another time, as an edit would."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 2_000_000_000))


def test_the_folder_is_the_platforms_unless_a_variable_names_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WHISPYX_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert cache.cache_root() == tmp_path / "xdg" / "whispyx"
    monkeypatch.setenv("WHISPYX_CACHE", str(tmp_path / "own"))
    assert cache.cache_root() == tmp_path / "own"
    monkeypatch.setenv("WHISPYX_CACHE", "~/own")
    assert cache.cache_root() == Path.home() / "own"


def test_an_untouched_file_is_good(tmp_path: Path) -> None:
    assert cache.check_cached(cached_file(tmp_path)) is None


def test_a_file_of_another_size_is_damaged(tmp_path: Path) -> None:
    path = cached_file(tmp_path)
    path.write_bytes(b"conten")
    assert cache.check_cached(path) == "it has 6 bytes, but 7 were recorded"


def test_a_file_with_other_bytes_is_damaged(tmp_path: Path) -> None:
    path = cached_file(tmp_path)
    path.write_bytes(b"c0ntent")
    later(path)
    problem = cache.check_cached(path)
    assert problem is not None
    assert "checksum" in problem


def test_a_file_that_was_only_touched_is_good_and_recorded_anew(tmp_path: Path) -> None:
    path = cached_file(tmp_path)
    later(path)
    assert cache.check_cached(path) is None
    assert json.loads((tmp_path / "file.json").read_text())["mtime_ns"] == path.stat().st_mtime_ns


def test_a_file_without_a_record_was_put_there_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"anything")
    assert cache.check_cached(path) is None
    path.write_bytes(b"")
    assert cache.check_cached(path) == "it is empty"


@pytest.mark.parametrize("record", ["", "[1]", '{"size": 1}', "\xff"])
def test_a_record_that_cannot_be_read_is_ignored_with_a_warning(
    tmp_path: Path, record: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = cached_file(tmp_path)
    (tmp_path / "file.json").write_bytes(record.encode("latin-1"))
    assert cache.check_cached(path) is None
    assert "cannot be read" in caplog.text


def child_with_lock(target: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "locked\n"
    return child


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    child = child_with_lock(target)
    entered = threading.Event()

    def enter() -> None:
        with cache.locked(target):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.5)
    child.communicate("\n", timeout=30)
    assert entered.wait(30)
    thread.join()


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    child = child_with_lock(target)
    child.kill()
    child.communicate(timeout=30)
    with cache.locked(target):
        pass


def test_a_process_that_does_nothing_is_not_waited_for_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_POLL_S", 0.05)
    monkeypatch.setattr(cache, "_SILENCE_S", 0.2)
    target = tmp_path / "model.bin"
    child = child_with_lock(target)
    try:
        with pytest.raises(ModelError, match="another process has held"), cache.locked(target):
            pytest.fail("the lock is held elsewhere")
    finally:
        child.communicate("\n", timeout=30)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be used"), cache.locked(tmp_path / "file" / "models" / "m"):
        pytest.fail("there is no folder to lock")


def test_a_workspace_is_empty_at_the_start_and_gone_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    left = tmp_path / ".model.bin.work"
    left.mkdir()
    (left / "rest").write_text("of a process that was killed")
    with pytest.raises(ZeroDivisionError), cache.workspace(target) as work:
        assert list(work.iterdir()) == []
        (work / "x").write_text("")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_cache_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    monkeypatch.delenv("WHISPYX_CACHE", raising=False)
    usual = cache.cache_root()
    monkeypatch.setenv("WHISPYX_CACHE", blank)
    assert cache.cache_root() == usual


def test_a_cache_folder_in_the_home_of_a_user_there_is_not_is_a_plain_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISPYX_CACHE", "~nobody-of-this-name/cache")
    assert cache.cache_root().name == "cache"
