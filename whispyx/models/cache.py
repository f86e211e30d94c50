"""The folder where fetched files live, the record kept beside each, and the lock between processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from whispyx.errors import ModelError

from .progress import Progress

__all__ = [
    "Record",
    "cache_root",
    "check_cached",
    "distrust",
    "locked",
    "recall",
    "record_path",
    "remember",
    "sha256_of",
    "work_path",
    "workspace",
]

log = logging.getLogger("whispyx.models")

DISTRUSTED: Final = 0
"""Time in the record of a file whose bytes were found to be others: no file has it."""
_LOCKS: Final = ".locks"
_POLL_S: Final = 1.0
_SILENCE_S: Final = 600.0
"""How long another process may hold a lock without any of its files changing."""


def cache_root() -> Path:
    """Return the cache folder: `WHISPYX_CACHE`, or the platform's place for caches."""
    chosen = os.environ.get("WHISPYX_CACHE", "")
    if not chosen.strip():
        from platformdirs import user_cache_path

        return user_cache_path("whispyx", appauthor=False)
    return Path(os.path.expanduser(chosen)).absolute()  # unlike Path.expanduser it takes the name of a stranger


def sha256_of(path: Path, progress: Progress | None = None, also: hashlib._Hash | None = None) -> str:
    """Return the SHA-256 of a file as hexadecimal text; `also` is another digest that takes the same bytes."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        while block := file.read(1 << 20):
            digest.update(block)
            if also is not None:
                also.update(block)
            done += len(block)
            if progress is not None:
                progress(done, total, "verify")
    return digest.hexdigest()


@dataclass(frozen=True)
class Record:
    """What is known about a cached file; stored beside it as `<file>.json`."""

    size: int
    mtime_ns: int
    sha256: str
    source: str


def record_path(path: Path) -> Path:
    """Return where the record of a cached file lies."""
    return path.with_name(path.name + ".json")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file so that it appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remember(path: Path, sha256: str, source: str) -> None:
    """Record size, time, checksum and origin of a file that has just been put into the cache."""
    stat = path.stat()
    write_atomically(record_path(path), _written(Record(stat.st_size, stat.st_mtime_ns, sha256, source)))


def _written(record: Record) -> bytes:
    return json.dumps(asdict(record), indent=1).encode() + b"\n"


def distrust(path: Path) -> None:
    """Have a file that was found damaged checked again whenever it is used, however unchanged it looks."""
    record = recall(path)
    if record is not None:
        write_atomically(record_path(path), _written(replace(record, mtime_ns=DISTRUSTED)))


def recall(path: Path) -> Record | None:
    """Return what was recorded about a cached file; None: nothing, or it cannot be read."""
    try:
        return Record(**json.loads(record_path(path).read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        log.warning("the record of %s cannot be read (%s); the file is taken as it is", path, error)
        return None


def check_cached(path: Path) -> str | None:
    """Compare a cached file with its record.

    The checksum is computed only when the file's time has changed since it was recorded. A file without a record
    was put there by hand and is taken as it is.

    Returns
    -------
    str or None
        What is wrong with the file, or None.
    """
    stat = path.stat()
    if stat.st_size == 0:
        return "it is empty"
    record = recall(path)
    if record is None:
        return None
    if stat.st_size != record.size:
        return f"it has {stat.st_size} bytes, but {record.size} were recorded"
    if stat.st_mtime_ns != record.mtime_ns:
        if sha256_of(path) != record.sha256:
            return "its checksum is not the one that was recorded"
        with contextlib.suppress(OSError):  # a cache that cannot be written is checked again next time
            remember(path, record.sha256, record.source)
    return None


def _activity(folder: Path, stem: str) -> frozenset[tuple[str, int, int]]:
    """Return names, sizes and times of what the holder of a lock is writing."""
    found = set()
    for root, folders, names in os.walk(folder):
        if _LOCKS in folders:
            folders.remove(_LOCKS)  # trying to lock may touch the lock's own file
        for name in names:
            path = os.path.join(root, name)
            if stem in path[len(str(folder)) :]:
                with contextlib.suppress(OSError):
                    stat = os.stat(path)
                    found.add((path, stat.st_size, stat.st_mtime_ns))
    return frozenset(found)


@contextlib.contextmanager
def locked(target: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock between processes that guards making `target`.

    Waits as long as the process that holds it makes progress, or, with `wait=False`, not at all.

    Raises
    ------
    ModelError
        The other process has written nothing for ten minutes, or the folder cannot be written.
    """
    from filelock import FileLock, Timeout  # only who makes something waits for others

    try:
        locks = target.parent / _LOCKS
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{target.name}.lock")
        seen, since = None, time.monotonic()
        while True:
            try:
                lock.acquire(timeout=_POLL_S if wait else 0)
                break
            except Timeout:
                if not wait:
                    raise ModelError(f"another process is fetching {target.name}") from None
                now = _activity(target.parent, target.name)
                if now != seen:
                    if seen is None:
                        log.info("waiting for another process that fetches %s", target.name)
                    seen, since = now, time.monotonic()
                elif time.monotonic() - since > _SILENCE_S:
                    raise ModelError(
                        f"another process has held {lock.lock_file} for {_SILENCE_S / 60:.0f} minutes without writing "
                        "anything; end it and try again"
                    ) from None
    except (OSError, NotImplementedError) as error:  # some network file systems have no locks
        raise ModelError(f"the cache folder {target.parent} cannot be used: {error}") from error
    try:
        yield
    finally:
        lock.release()


def work_path(target: Path) -> Path:
    """Return the folder in which `target` is made."""
    return target.with_name(f".{target.name}.work")


@contextlib.contextmanager
def workspace(target: Path) -> Iterator[Path]:
    """Give an empty folder beside `target` for what is needed while making it; it is removed at the end.

    The caller holds the lock of `target`, so what an interrupted process left there is removed first.
    """
    folder = work_path(target)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
