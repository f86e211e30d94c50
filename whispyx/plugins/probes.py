"""Looks for what a manifest says is needed, and says how to get what is missing.

The build reads this module by its path, as it does `manifest`: only Python's own library is imported here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from whispyx.plugins.manifest import Probe

__all__ = ["Missing", "look_for", "missing"]

_SONAME: Final = re.compile(r"lib.+\.so(\.\d+)*")
_LIBRARY_FOLDERS: Final = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")


@dataclass(frozen=True)
class Missing:
    """Something that was looked for and is not here."""

    what: str
    looked_for: str
    install: str

    def __str__(self) -> str:
        return f"{self.what[0].upper()}{self.what[1:]} ({self.looked_for}): {self.install}"


def missing(probes: Iterable[Probe], settings: Mapping[str, str] | None = None) -> list[Missing]:
    """Return what is not here.

    Parameters
    ----------
    probes : iterable of Probe
    settings : mapping, optional
        CMake options that the user set.
    """
    chosen = settings or {}
    return [
        Missing(probe.what, _looked_for(probe), _install(probe))
        for probe in probes
        if probe.unless not in chosen and not look_for(probe)
    ]


def look_for(probe: Probe) -> bool:
    """Return whether what `probe` asks for is here."""
    value = probe.value
    folders = [path for path in map(os.path.expandvars, probe.places) if "$" not in path]
    if probe.need == "program":
        return any(shutil.which(value, path=path) for path in (None, *folders))
    if probe.need == "header":
        source = f"#include <{value}>\n"
        if probe.by:
            return _succeeds(probe.by, "-E", "-x", "cu" if probe.by == "nvcc" else "c++", "-", text=source)
        return any(Path(folder, value).is_file() for folder in folders) or _compiles(source, "-E")
    if probe.need == "library":
        return any(Path(folder, f"lib{value}.so").exists() for folder in folders) or _library(value)
    if probe.need == "python":
        return _importable(value)
    if probe.need == "pkgconfig":
        return shutil.which("pkg-config") is not None and _succeeds("pkg-config", "--exists", value)
    if probe.need == "platform":
        return sys.platform == value
    return bool(os.environ.get(value, "").strip())


def _looked_for(probe: Probe) -> str:
    words = {
        "program": "no program {} on PATH",
        "header": "the compiler finds no {}",
        "library": "no library {}",
        "python": "no Python package {}",
        "pkgconfig": "pkg-config does not know {}",
        "platform": f"this is {sys.platform}, not {{}}",
        "variable": "the variable {} is not set",
    }
    places = f", nor is it in {' or '.join(probe.places)}" if probe.places else ""
    text = words[probe.need].format(probe.value)
    return (text.replace("the compiler", probe.by) if probe.by else text) + places


def _install(probe: Probe) -> str:
    ways = []
    if probe.debian:
        ways.append(f"apt-get install {probe.debian}")
    if probe.pypi:
        ways.append(f"pip install {probe.pypi}")
    text = ", or ".join(ways)
    return f"{text}; {probe.hint}" if text and probe.hint else text or probe.hint


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _library(name: str) -> bool:
    if not _SONAME.fullmatch(name):
        return _compiles("int main(void) { return 0; }\n", "-o", os.devnull, link=name)
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *_LIBRARY_FOLDERS]
    if any(folder and Path(folder, name).exists() for folder in folders):
        return True
    return name in _linker_cache()


@cache
def _linker_cache() -> frozenset[str]:
    """Return the SONAMEs that the dynamic linker's cache lists."""
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        return frozenset()
    listed = subprocess.run([program, "-p"], capture_output=True, text=True, errors="replace", check=False).stdout
    return frozenset(line.split()[0] for line in listed.splitlines() if "=>" in line)


def _compiles(source: str, *flags: str, link: str = "") -> bool:
    """Have the C++ compiler read `source`. Without a compiler nothing that asks for one is found."""
    chosen = os.environ.get("CXX", "").split()
    names = chosen[:1] or ["c++", "g++", "clang++"]
    compiler = next((path for name in names if (path := shutil.which(name))), None)
    if compiler is None:
        return False
    command = [compiler, *chosen[1:], *os.environ.get("CXXFLAGS", "").split(), "-x", "c++", "-", *flags]
    if link:
        command += [*os.environ.get("LDFLAGS", "").split(), f"-l{link}"]
    return _succeeds(*command, text=source)


def _succeeds(*command: str, text: str = "") -> bool:
    try:
        done = subprocess.run(command, input=text, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:  # there is no such program
        return False
    return done.returncode == 0
