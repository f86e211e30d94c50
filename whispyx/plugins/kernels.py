"""Our own compute kernels: one library per instruction set; the one that suits the machine best is used.

They are no ggml backends: they have no devices, and the CPU plugin's threads run them. A model that is loaded with
``compute="exact"`` does without them.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whispyx._core import kernels as core
from whispyx.errors import BackendError, BackendNotFoundError, BackendUnsupportedError, ParamsError
from whispyx.plugins import abi

__all__ = ["KERNELS_VARIABLE", "KernelRecord", "check_compute", "check_wanted", "load", "records"]

log: Final = logging.getLogger("whispyx.plugins")

COMPUTE_VARIABLE: Final = "WHISPYX_COMPUTE"
KERNELS_VARIABLE: Final = "WHISPYX_KERNELS"
PREFIX: Final = "libwhispyx-kernels-"
AUTO, OFF = "auto", "off"


def check_compute(value: str | None) -> str:
    """Return the precision that is meant: None is what ``WHISPYX_COMPUTE`` says, and without it "auto".

    Raises
    ------
    ParamsError
        There is no such precision.
    """
    what = "compute"
    if value is None:
        what = COMPUTE_VARIABLE
        value = os.environ.get(COMPUTE_VARIABLE, "").strip().lower() or AUTO
    if value not in core.COMPUTE:
        raise ParamsError(f"{what} must be one of {', '.join(core.COMPUTE)}; got {value!r}")
    return value


@dataclass(frozen=True)
class KernelRecord:
    """What became of one library.

    Attributes
    ----------
    name, path : str
    score : int or None
        How well it suits this machine, 0: not at all; None where it could not be asked.
    reason : str
        Why it cannot be used; empty where it can.
    used : bool
    """

    name: str
    path: str
    score: int | None
    reason: str
    used: bool


_lock: Final = threading.Lock()
_opened: dict[str, abi.KernelLibrary | BackendError] = {}
_chosen: str | None = None


def folder() -> Path:
    """Return the folder of the libraries that come with the package."""
    return Path(__file__).resolve().parent.parent / "_native" / "kernels"


def wanted() -> str:
    """Return what ``WHISPYX_KERNELS`` says: "auto", "off", the name of a library or an absolute path.

    Raises
    ------
    ParamsError
        It is a relative path.
    """
    value = os.environ.get(KERNELS_VARIABLE, "").strip() or AUTO
    if os.sep in value and not os.path.isabs(value):
        raise ParamsError(f"{KERNELS_VARIABLE} is the relative path {value!r}; write the whole path")
    return value if os.sep in value else value.lower()


def check_wanted() -> None:
    """Raise ParamsError unless ``WHISPYX_KERNELS`` holds something that `load` can look for."""
    value = wanted()
    if os.sep not in value and value not in (AUTO, OFF, *map(_name_of, _files())):
        raise ParamsError(f"{KERNELS_VARIABLE} is {value!r}, and there are no kernels of that name")


def load() -> str | None:
    """Choose the library for models that are loaded from now on, and return its name; None without one.

    Raises
    ------
    BackendNotFoundError
        ``WHISPYX_KERNELS`` names a library that is not there.
    BackendError
        The one that it names cannot be used here.
    ParamsError
        The variable cannot be understood.
    """
    global _chosen
    choice = wanted()
    with _lock:
        if choice == _chosen:
            return core.name()
        if choice == OFF:
            core.use(None)
        elif choice == AUTO:
            _use_best()
        else:
            _use_named(choice)
        _chosen = choice
    return core.name()


def _use_best() -> None:
    usable = [found for path in _files() if isinstance(found := _open(path), abi.KernelLibrary) and found.score > 0]
    if not usable:
        core.use(None)
        return
    best = max(usable, key=lambda library: library.score)
    core.use(best.table(), best.path)
    log.info("kernels of %s are used", best.path)


def _use_named(choice: str) -> None:
    if os.sep in choice:
        path = choice
    else:
        path = str(folder() / f"{PREFIX}{choice}.so")
        if not Path(path).exists():
            known = ", ".join([OFF, AUTO, *map(_name_of, _files())])
            raise BackendNotFoundError(f"{KERNELS_VARIABLE} asks for the kernels {choice!r}; there are: {known}")
    found = _open(path)
    if isinstance(found, BackendError):
        raise type(found)(f"{KERNELS_VARIABLE} asks for {path}, which cannot be used: {found.args[0]}")
    if found.score <= 0:
        raise BackendUnsupportedError(f"{KERNELS_VARIABLE} asks for {path}, which does not support this machine")
    core.use(found.table(), found.path)


def records() -> tuple[KernelRecord, ...]:
    """Return what is known of every library of the package, best first."""
    found = []
    with _lock:
        for path in _files():
            library = _open(path)
            used = core.path() == path
            if isinstance(library, BackendError):
                found.append(KernelRecord(_name_of(path), path, None, str(library), used))
            else:
                reason = "" if library.score > 0 else "it does not support this machine"
                found.append(KernelRecord(_name_of(path), path, library.score, reason, used))
    return tuple(sorted(found, key=lambda record: -(record.score or 0)))


def _files() -> list[str]:
    return sorted(str(path) for path in folder().glob(f"{PREFIX}*.so"))


def _name_of(path: str) -> str:
    return Path(path).stem.removeprefix(PREFIX)


def _open(path: str) -> abi.KernelLibrary | BackendError:
    if path not in _opened:
        try:
            _opened[path] = abi.open_kernels(path)
        except BackendError as error:
            log.info("kernels %s are refused: %s", path, error)
            _opened[path] = error
    return _opened[path]
