"""The C side of a plugin: open its library, check that it fits this process, call its two functions.

It uses cffi in ABI mode: nothing is compiled. What it calls is declared in declarations.py.

A library that has been opened is never closed. Backends start threads and drivers that outlive any handle, and the
devices they registered stay in the table for the life of the process.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

from whispyx._core.base import base_library, ggml_version
from whispyx._core.devices import engine_message
from whispyx.errors import BackendAbiError, BackendLoadError
from whispyx.plugins import elf
from whispyx.plugins._declarations import ffi

__all__ = ["KernelLibrary", "Library", "open_dependency", "open_kernels", "open_plugin"]

KERNELS_ABI: Final = 6
BASE_PROBE: Final = "ggml_backend_buffer_init"
BASE_FILE: Final = "libwhispyx-ggml-base.so"
FOREIGN_BASE: Final = re.compile(r"libggml(-base|-cpu)?\.so(\.\d+)*")
HAS_ELF: Final = sys.platform.startswith(("linux", "freebsd"))


class Library:
    """An opened plugin that has passed every check that needs no call of `ggml_backend_init`.

    Attributes
    ----------
    path : str
    score : int
        How well it suits this machine, larger is better; 0 means not at all. 1 when the plugin does not say.
    scored : bool
        Whether the plugin exports a score function.
    version : str or None
        The ggml it was built from; None when it does not say.
    """

    def __init__(self, path: str, lib: Any, score: int, scored: bool, version: str | None) -> None:
        self.path = path
        self.score = score
        self.scored = scored
        self.version = version
        self._lib = lib

    def init(self) -> int:
        """Start the backend and return the address of its registration.

        Raises
        ------
        BackendLoadError
            The backend refused to start.
        """
        engine_message()
        address = int(ffi.cast("uintptr_t", self._lib.ggml_backend_init()))
        if address == 0:
            raise BackendLoadError(
                "it refused to start (its ggml_backend_init returned NULL); often a driver or a device is missing",
                log=engine_message(),
            )
        return address


# Every handle that was ever opened, so that cffi never closes one.
_opened: dict[str, Any] = {}


def open_plugin(path: str) -> Library:
    """Open the library at `path` (absolute) and check that it is a plugin for this process.

    Raises
    ------
    BackendLoadError
        There is no such file, it is not a loadable library, something it depends on is missing, or it is no plugin.
    BackendAbiError
        It was built for another ggml than the one in this process.
    """
    _check_file(path)
    lib = _dlopen(path)
    if _symbol(lib, "ggml_backend_init") is None:
        raise BackendLoadError("it is a library but not a ggml plugin: it does not export ggml_backend_init")
    _check_base(lib)
    version = _version(lib)
    scored = _symbol(lib, "ggml_backend_score") is not None
    score = int(lib.ggml_backend_score()) if scored else 1
    return Library(path, lib, score, scored, version)


class KernelLibrary:
    """An opened library of kernels.

    Attributes
    ----------
    path : str
    score : int
        How well it suits this machine, larger is better; 0 means not at all.
    """

    def __init__(self, path: str, lib: Any) -> None:
        self.path = path
        self.score = int(lib.whispyx_kernels_score())
        self._lib = lib

    def table(self) -> int:
        """Return the address of its functions. Only for a machine that it supports."""
        return int(ffi.cast("uintptr_t", self._lib.whispyx_kernels()))


def open_kernels(path: str) -> KernelLibrary:
    """Open the library of kernels at `path` (absolute).

    Raises
    ------
    BackendLoadError
        There is no such file, it is not a loadable library, or it holds no kernels.
    BackendAbiError
        It is of another version than this package.
    """
    _check_file(path)
    lib = _dlopen(path)
    for name in ("whispyx_kernels_abi", "whispyx_kernels_score", "whispyx_kernels"):
        if _symbol(lib, name) is None:
            raise BackendLoadError(f"it holds no kernels: it does not export {name}")
    version = int(lib.whispyx_kernels_abi())
    if version != KERNELS_ABI:
        raise BackendAbiError(f"it is of version {version}, and this whispyx needs version {KERNELS_ABI}")
    return KernelLibrary(path, lib)


def open_dependency(path: str) -> None:
    """Open a library that a plugin is linked to, so that the linker knows it by its name; its own names stay hidden.

    Raises
    ------
    BackendLoadError
        It is not a loadable library.
    """
    elf.inspect(path)
    _dlopen(path)


def _check_file(path: str) -> None:
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError as error:
        raise BackendLoadError("there is no such file") from error
    except OSError as error:
        raise BackendLoadError(f"the file cannot be looked at: {error.strerror or error}") from error
    if stat.S_ISDIR(mode):
        raise BackendLoadError("it is a directory, not a library")
    if not stat.S_ISREG(mode):
        raise BackendLoadError("it is not a regular file")
    if not HAS_ELF:
        return
    found = elf.inspect(path)
    if found.machine != _machine():
        raise BackendLoadError("the file is a library for another kind of processor")
    for needed in found.needed:
        if FOREIGN_BASE.fullmatch(needed):
            raise BackendAbiError(
                f"it is linked to {needed}, another ggml than the {BASE_FILE} of this process; "
                f"link it to {BASE_FILE} instead"
            )


def _dlopen(path: str) -> Any:
    known = _opened.get(path)
    if known is not None:
        return known
    flags = ffi.RTLD_NOW | ffi.RTLD_LOCAL | getattr(ffi, "RTLD_NODELETE", 0)
    if _global_ggml() is not None:
        # Some other package, or the program itself, shows its ggml to every library of the process. Ours must come
        # first for our plugins; only in this case, because it also hides a replaced malloc from them.
        flags |= getattr(ffi, "RTLD_DEEPBIND", 0)
    # Not ffi.dlopen(path): it cannot open a path that is not UTF-8, and it closes the library with the object.
    program = _program()
    dlopen, dlerror = program.dlopen, program.dlerror  # looked up first: that itself resets what dlerror returns
    handle = dlopen(os.fsencode(path), flags)
    if handle == ffi.NULL:
        raw = dlerror()
        message = "it does not say why" if raw == ffi.NULL else os.fsdecode(ffi.string(raw))
        raise BackendLoadError(f"the dynamic linker refuses it: {message.removeprefix(f'{path}: ')}")
    lib = _opened[path] = ffi.dlopen(handle)
    return lib


def _symbol(lib: Any, name: str) -> Any:
    try:
        return ffi.addressof(lib, name)
    except (AttributeError, ffi.error):
        return None


def _owner(function: Any) -> str | None:
    """Return the real path of the library that holds `function`."""
    info = ffi.new("Dl_info *")
    if _program().dladdr(ffi.cast("void *", function), info) == 0 or info.dli_fname == ffi.NULL:
        return None
    return os.path.realpath(os.fsdecode(ffi.string(info.dli_fname)))


@cache
def _program() -> Any:
    return ffi.dlopen(None)


@cache
def _machine() -> int:
    return elf.inspect(base_library()).machine


def _global_ggml() -> str | None:
    """Return the library whose ggml every library of the process sees; None when there is none but ours."""
    function = _symbol(_program(), BASE_PROBE)
    owner = None if function is None else _owner(function)
    return None if owner == base_library() else owner


def _check_base(lib: Any) -> None:
    function = _symbol(lib, BASE_PROBE)
    # A plugin that calls nothing of ggml need not be linked to it.
    if function is None:
        return
    owner = _owner(function)
    if owner != base_library():
        raise BackendAbiError(f"it brings a ggml of its own ({owner}); link it to {BASE_FILE} instead")


def _version(lib: Any) -> str | None:
    if _symbol(lib, "whispyx_plugin_ggml_version") is None:
        return None
    raw = lib.whispyx_plugin_ggml_version()
    if raw == ffi.NULL:
        return None
    version: str = ffi.string(raw).decode("utf-8", "replace")
    if version != ggml_version():
        raise BackendAbiError(
            f"it was built from ggml {version} and this process runs ggml {ggml_version()}; "
            f"build it again against ggml {ggml_version()}"
        )
    return version
