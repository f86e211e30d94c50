"""Builds plugins from C source and runs Python in child processes: a bad plugin may take its process with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import whispyx
from whispyx._core.devices import base_library, ggml_version

ROOT = Path(__file__).resolve().parents[2]
HEADERS = (ROOT / "vendor" / "ggml" / "include", ROOT / "vendor" / "ggml" / "src")
SOURCES = Path(__file__).resolve().parent / "sources"
EXAMPLE = (ROOT / "backends" / "example" / "example.c", ROOT / "backends" / "common" / "plugin_version.c")
CHILD_SECONDS = 300
VARIABLES = (
    "WHISPYX_BACKEND",
    "WHISPYX_BACKEND_PATH",
    "WHISPYX_BACKEND_EXCLUDE",
    "WHISPYX_CPU_VARIANT",
    "WHISPYX_PLUGIN_HOME",
    "WHISPYX_RPC_SERVERS",
    "WHISPYX_RPC_TIMEOUT",
)


class Compiler:
    """Makes shared libraries for tests."""

    def __init__(self) -> None:
        found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
        if found is None:
            pytest.skip("no C compiler (cc, gcc or clang) on the search path")
        if not (HEADERS[1] / "ggml-backend-impl.h").is_file():
            pytest.skip(f"not a source tree: {HEADERS[1]} does not hold ggml's source")
        self.command = found

    def library(self, path: Path, sources: Sequence[Path], flags: Sequence[str] = ()) -> Path:
        """Compile `sources` into the shared library `path`, linked to our ggml base."""
        path.parent.mkdir(parents=True, exist_ok=True)
        base = Path(base_library()).resolve()
        command = [self.command, "-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
        command += ["-DGGML_BACKEND_DL", "-DGGML_BACKEND_SHARED", *(f"-I{folder}" for folder in HEADERS)]
        command += [*map(str, sources), "-o", str(path), *flags, f"-L{base.parent}", "-lwhispyx-ggml-base"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        return path

    def example(self, folder: Path, file: str = "libggml-example.so") -> Path:
        """Build the example plugin of backends/ as backends/README.md says."""
        flags = ["-Wall", "-Wextra", "-Werror", f'-DWHISPYX_GGML_VERSION="{ggml_version()}"']
        return self.library(folder / file, EXAMPLE, flags)

    def odd(self, folder: Path, *flags: str, name: str = "odd", tag: str = "") -> Path:
        """Build a plugin with one thing wrong with it."""
        file = f"libggml-{name}-{tag}.so" if tag else f"libggml-{name}.so"
        return self.library(folder / file, [SOURCES / "odd.c"], flags)


def python(
    code: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = ("-c",),
    seconds: float = CHILD_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run `code` (or, with other flags, a module) in a child that sees this whispyx and only the variables given."""
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    package_parent = str(Path(whispyx.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([package_parent, *filter(None, [os.environ.get("PYTHONPATH")])])
    # What this user has built must not change what a test finds.
    environment["WHISPYX_PLUGIN_HOME"] = "/nonexistent"
    environment["GGML_NO_BACKTRACE"] = "1"  # a child that aborts says so in one line, not through a debugger
    environment.update(env or {})
    return subprocess.run(
        [sys.executable, *flags, code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=seconds,
        check=False,
    )


PREAMBLE = """
import json, os, sys
import whispyx.plugins as plugins
from whispyx._core import devices as table

def attempt(*arguments):
    try:
        report = plugins.load(*arguments)
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"error": str(error), "kinds": kinds}
    return {"selected": report.selected, "loaded": [r.name for r in report.loaded]}

def found():
    return [
        {"file": os.path.basename(r.path), "path": r.path, "name": r.name, "status": r.status, "score": r.score,
         "reason": r.reason, "notes": r.notes, "devices": r.devices, "source": r.source, "version": r.version}
        for r in plugins.report().found
    ]

def answer(value):
    print(json.dumps(value))
"""


def ask(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> Any:
    """Run `code` in a child that has `attempt`, `found` and `answer` at hand; return what it answers."""
    done = python(PREAMBLE + code, *arguments, env=env)
    if done.returncode < 0:
        pytest.fail(f"the child died of {signal.Signals(-done.returncode).name}\n{done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "the library printed something"
    return json.loads(done.stdout.splitlines()[-1])
