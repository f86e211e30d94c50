"""What the cache holds of the models that have a name: looked at, verified, removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from whispyx.errors import ModelError, ModelNotFoundError

from .cache import (
    DISTRUSTED,
    Record,
    cache_root,
    distrust,
    locked,
    recall,
    record_path,
    remember,
    sha256_of,
    work_path,
)
from .download import part_path
from .names import MODELS, KnownModel, find
from .progress import Progress

__all__ = ["STATES", "Entry", "State", "entries", "entry", "folder", "others", "remove", "verify"]

State = Literal["absent", "unfinished", "verified", "changed", "unrecorded", "damaged"]

STATES: Final[dict[State, str]] = {
    "absent": "-",
    "unfinished": "begun",
    "verified": "verified",
    "changed": "touched since it was verified",
    "unrecorded": "put there by hand",
    "damaged": "damaged",
}
"""What is said about each state."""
_OTHER_BYTES: Final = "its checksum is not the one that was recorded"


@dataclass(frozen=True)
class Entry:
    """A model and its file in the cache.

    Attributes
    ----------
    model : KnownModel
    path : Path
        Where the file is, or would be.
    state : str
        "absent"; "unfinished": a part of a download is here; "verified": size and time are those that were recorded
        with the checksum; "changed": the time is another one, the next use compares the checksum; "unrecorded":
        nothing is known about the file, it is taken as it is; "damaged".
    size : int
        Bytes that it takes in the cache.
    problem : str or None
        What is wrong with a damaged file.
    record : Record or None
    """

    model: KnownModel
    path: Path
    state: State
    size: int = 0
    problem: str | None = None
    record: Record | None = None


def folder() -> Path:
    """Return the folder that holds the models."""
    return cache_root() / "models"


def entry(name: str) -> Entry:
    """Look at one model, without reading its file.

    Raises
    ------
    ModelNotFoundError
        No model has this name.
    ModelError
        The cache cannot be read.
    """
    model = find(name)
    path = folder() / model.file_name
    try:
        return _entry(model, path)
    except OSError as error:
        raise ModelError(f"the cache folder {path.parent} cannot be read: {error}") from error


def _entry(model: KnownModel, path: Path) -> Entry:
    if not path.is_file():
        begun = [leftover for leftover in (part_path(path), work_path(path)) if os.path.lexists(leftover)]
        return Entry(model, path, "unfinished" if begun else "absent", sum(map(_bytes_in, begun)))
    stat, record = path.stat(), recall(path)
    if stat.st_size == 0:
        return Entry(model, path, "damaged", 0, "it is empty", record)
    if record is None:
        return Entry(model, path, "unrecorded", stat.st_size)
    if stat.st_size != record.size:
        problem = f"it has {stat.st_size} bytes, but {record.size} were recorded"
        return Entry(model, path, "damaged", stat.st_size, problem, record)
    if record.mtime_ns == DISTRUSTED:
        return Entry(model, path, "damaged", stat.st_size, _OTHER_BYTES, record)
    state: State = "verified" if stat.st_mtime_ns == record.mtime_ns else "changed"
    return Entry(model, path, state, stat.st_size, None, record)


def _bytes_in(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(os.lstat(os.path.join(root, name)).st_size for root, _, names in os.walk(path) for name in names)


def entries() -> list[Entry]:
    """Look at every model that has a name.

    Raises
    ------
    ModelError
        The cache cannot be read.
    """
    return [entry(name) for name in MODELS]


def others() -> list[Path]:
    """Return the files in the folder that belong to no name."""
    known: set[str] = set()
    for model in MODELS.values():
        path = folder() / model.file_name
        known |= {own.name for own in _all_of(path)}
    try:
        return sorted(path for path in folder().iterdir() if path.name not in known and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ModelError(f"the cache folder {folder()} cannot be read: {error}") from error


def _all_of(path: Path) -> tuple[Path, ...]:
    """Everything that the cache may keep for the model at `path`."""
    part = part_path(path)
    return (path, record_path(path), part, record_path(part), work_path(path))


def verify(name: str, progress: Progress | None = None) -> Entry:
    """Compare the whole file of a model with its record, or with the published checksum where there is no record.

    Parameters
    ----------
    name : str
    progress : callable, optional
        Called with (bytes done, bytes in all, "verify").

    Returns
    -------
    Entry
        Its state is "verified", "damaged" or "unrecorded"; the last when there is nothing to compare the file with.
        A file that was found damaged is fetched again by the next use.

    Raises
    ------
    ModelNotFoundError
        No model has this name, or it is not in the cache.
    ModelError
        The file cannot be read.
    """
    found = entry(name)
    model, path, record = found.model, found.path, found.record
    if found.state in ("absent", "unfinished"):
        raise ModelNotFoundError(f"{model.name} is not in the cache: there is no {path}")
    if found.size == 0 or (record is not None and record.size != found.size):
        return found  # its size tells already
    sha1 = hashlib.sha1(usedforsecurity=False)
    try:
        before = path.stat()
        sha256 = sha256_of(path, progress, sha1)
        after = path.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    if _identity(before) != _identity(after):
        raise ModelError(f"{path} was changed while it was read; verify it again")
    if record is None and sha1.hexdigest() != model.sha1:
        return found  # it may be one of the user's own, whatever its name says
    with contextlib.suppress(OSError):  # a cache that cannot be written is read all the same
        if record is not None and sha256 != record.sha256:
            distrust(path)
        else:
            remember(path, sha256, record.source if record is not None else "put there by hand")
    if record is not None and sha256 != record.sha256:
        return Entry(model, path, "damaged", found.size, _OTHER_BYTES, record)
    return Entry(model, path, "verified", found.size, None, recall(path))


def _identity(stat: os.stat_result) -> tuple[int, int, int]:
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def remove(name: str) -> list[Path]:
    """Take a model out of the cache, with its record and what an unfinished download has left.

    Where the cache has a symbolic link, the link is removed and not what it leads to.

    Returns
    -------
    list of Path
        What was removed.

    Raises
    ------
    ModelNotFoundError
        No model has this name, or nothing of it is in the cache.
    ModelError
        Another process is fetching it, or the folder cannot be written.
    """
    model = find(name)
    path = folder() / model.file_name
    if not any(map(os.path.lexists, _all_of(path))):
        raise ModelNotFoundError(f"{model.name} is not in the cache: there is no {path}")
    removed = []
    with locked(path, wait=False):
        try:
            for own in filter(os.path.lexists, _all_of(path)):
                if own.is_dir() and not own.is_symlink():
                    shutil.rmtree(own)
                else:
                    own.unlink()
                removed.append(own)
        except OSError as error:
            raise ModelError(f"{error.filename or path} cannot be removed: {error.strerror or error}") from error
    return removed
