"""Runs CMake and Ninja in one build folder: configures when something changed, compiles, and leaves the rest alone."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.build import ROOT, BuildError

__all__ = ["GGML_OPTIONS", "Step", "Workshop", "program", "require_compiler", "require_program"]

GGML_OPTIONS: Final = {
    "GGML_BACKEND_DL": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "OFF",
    "GGML_LLAMAFILE": "ON",
    "GGML_CCACHE": "OFF",
}
"""What the base library and every plugin have in common."""

Step = Callable[[list[str], str], None]
"""Runs a command that does what the words say; raises BuildError when it fails."""

_TOOLCHAIN: Final = (  # read by CMake itself
    *("CC", "CXX", "CUDACXX", "HIPCXX", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "HIPFLAGS", "LDFLAGS"),
)
_STAMP: Final = "whispyx-configured.json"


@dataclass(frozen=True)
class Workshop:
    """A build folder.

    Attributes
    ----------
    folder : pathlib.Path
    tree : pathlib.Path
        The ggml source.
    cmake, ninja : str
        Paths of the programs.
    step : Step
    build_type : str
        As in `tools.build.config.BUILD_TYPES`.
    """

    folder: Path
    tree: Path
    cmake: str
    ninja: str
    step: Step
    build_type: str = "release"

    @property
    def libraries(self) -> Path:
        """Where the base library comes to lie; the plugins lie in plugins/ below it."""
        return self.folder / "lib"

    def configure(self, options: Mapping[str, str], what: str = "ggml") -> None:
        """Run CMake unless the last run had the same inputs."""
        every = {
            "CMAKE_BUILD_TYPE": "Release" if self.build_type == "release" else "RelWithDebInfo",
            "CMAKE_MAKE_PROGRAM": self.ninja,
            "WHISPYX_GGML_SOURCE": self.tree.as_posix(),
            "WHISPYX_ROOT": ROOT.as_posix(),
            "WHISPYX_SANITIZE": "ON" if self.build_type == "sanitize" else "OFF",
            **GGML_OPTIONS,
            **options,
        }
        arguments = [self.cmake, "-S", str(ROOT / "tools/build/cmake"), "-B", str(self.folder), "-G", "Ninja"]
        arguments += [f"-D{name}={value}" for name, value in every.items()]
        # CMake keeps the first compiler and the first paths of a build folder for ever, so those start a new one.
        identity = {name: os.environ.get(name) for name in _TOOLCHAIN} | {"root": str(ROOT), "tree": str(self.tree)}
        wanted = {"identity": _digest(identity), "arguments": _digest(arguments)}
        stamp = self.folder / _STAMP
        try:
            last = json.loads(stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = {}
        if last == wanted and (self.folder / "build.ninja").exists() and Path(self.cmake).exists():
            return
        if last.get("identity") != wanted["identity"]:
            shutil.rmtree(self.folder, ignore_errors=True)
        # It also keeps options that are no longer given; without its memory they are gone, and the objects stay.
        (self.folder / "CMakeCache.txt").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "CMakeFiles", ignore_errors=True)
        stamp.unlink(missing_ok=True)
        self.step(arguments, f"configuring {what}")
        stamp.write_text(json.dumps(wanted), encoding="utf-8")

    def compile(self, targets: Sequence[str], jobs: int, what: str = "ggml") -> None:
        """Make the targets; what is up to date is not compiled again."""
        command = [self.cmake, "--build", str(self.folder), "--parallel", str(jobs), "--target", *targets]
        self.step(command, f"compiling {what}")

    def plugin(self, target: str) -> Path:
        """Return where the library of a plugin's target lies."""
        return self.libraries / "plugins" / f"lib{target}.so"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


_FOLDERS: Final = {"cmake": "CMAKE_BIN_DIR", "ninja": "BIN_DIR"}


def program(name: str) -> str | None:
    """Return the path of cmake or ninja: from its Python package or from PATH; None when there is none."""
    try:
        folder = getattr(importlib.import_module(name), _FOLDERS[name])
    except (ImportError, AttributeError):
        folder = None
    return (shutil.which(name, path=folder) if folder else None) or shutil.which(name)


def require_compiler(*, python: bool = True) -> None:
    """Raise BuildError unless there are a C and a C++ compiler and, for modules of Python, its headers."""
    for variable, names, packages in (("CC", ("cc", "gcc", "clang"), "gcc"), ("CXX", ("c++", "g++", "clang++"), "g++")):
        chosen = os.environ.get(variable, "").split()
        if not any(shutil.which(name) for name in (chosen[:1] or names)):
            language = "C++" if variable == "CXX" else "C"
            asked = f"{variable} names '{chosen[0]}', which does not exist" if chosen else f"none of {', '.join(names)}"
            raise BuildError(
                f"No {language} compiler was found ({asked}{'' if chosen else ' is on PATH'}). Install one (Debian and "
                f"Ubuntu: apt-get install {packages}; Fedora: dnf install gcc-c++; Alpine: apk add build-base), or set "
                f"{variable} to yours, and build again."
            )
    include = Path(sysconfig.get_path("include"))
    if python and not (include / "Python.h").exists():
        raise BuildError(
            f"The headers of Python are missing (no Python.h in {include}). Install them (Debian and Ubuntu: apt-get "
            f"install python3-dev; Fedora: dnf install python3-devel), or use a Python that has them."
        )


def require_program(name: str) -> str:
    """Return the path of cmake or ninja, or raise BuildError."""
    found = program(name)
    if found is None:
        raise BuildError(
            f"{name} was not found. It is a build requirement that pip installs by itself; when building without build "
            f"isolation, run '{sys.executable} -m pip install {name}' first."
        )
    return found
