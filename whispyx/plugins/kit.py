"""Builds a plugin for this installation, from the kit that it carries or from the source tree around it.

The build itself (`tools/build/later.py` in the kit) runs as a process of its own: it needs nothing of whispyx, and the
name `tools` stays out of this one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whispyx._core.base import base_library
from whispyx.errors import BackendError, BackendNotFoundError
from whispyx.plugins import manifest

__all__ = ["Built", "build", "known", "manifests", "remove", "trouble"]

_START: Final = "import sys; sys.path.insert(0, sys.argv[1]); from tools.build.later import main; sys.exit(main())"
_LOAD_SECONDS: Final = 120


@dataclass(frozen=True)
class Built:
    """A plugin that has been built.

    Attributes
    ----------
    name : str
    files : tuple of str
        Its libraries.
    log : str
        What the build printed.
    """

    name: str
    files: tuple[str, ...]
    log: str


def manifests() -> dict[str, manifest.Manifest]:
    """Return what is known about each backend, by name.

    Raises
    ------
    BackendError
        This installation has no kit, or a manifest in it is damaged.
    """
    try:
        root = manifest.kit_root()
        return {name: manifest.read(manifest.path_of(name, root)) for name in manifest.names(root)}
    except manifest.ManifestError as error:
        raise BackendError(str(error)) from error


def known(name: str) -> manifest.Manifest:
    """Return the manifest of a backend.

    Raises
    ------
    BackendNotFoundError
        There is none of that name.
    """
    every = manifests()
    if name not in every:
        raise BackendNotFoundError(f"there is no backend {name!r} to build; there are {', '.join(every)}")
    return every[name]


def build(
    name: str,
    into: Path,
    cache: Path,
    *,
    settings: Mapping[str, str] | None = None,
    jobs: int | None = None,
    bundle: bool = True,
    step: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Built:
    """Compile a plugin against the base library of this process, and put it into a folder.

    Parameters
    ----------
    name : str
        A backend of `manifests`.
    into : pathlib.Path
        Where its libraries are put.
    cache : pathlib.Path
        Where source, programs and build folders are kept.
    settings : mapping of str to str, optional
        CMake options.
    jobs : int, optional
        How many compilers run side by side.
    bundle : bool
        Whether libraries from Python packages that the plugin is linked to are copied beside it, where the manifest
        says so; else those packages must be installed wherever it runs.
    step : callable, optional
        Called with words when another piece of work begins.
    progress : callable, optional
        Called with what is done and the total while it compiles.

    Raises
    ------
    BackendError
        Something that it needs is missing, or compiling failed. The message says what to do.
    """
    known(name)
    request = {
        "name": name,
        "base": str(Path(base_library()).resolve()),
        "into": str(into),
        "cache": str(cache),
        "settings": dict(settings or {}),
        "jobs": jobs,
        "bundle": bundle,
    }
    root = manifest.kit_root()
    # Started without writing bytecode: what a package manager installed stays as it is.
    with subprocess.Popen(
        [sys.executable, "-B", "-c", _START, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        try:
            child.stdin.write(json.dumps(request))
            child.stdin.close()
            last = _follow(child.stdout, step, progress)
            said = child.stderr.read()
            status = child.wait()
        except BaseException:
            child.terminate()
            raise
    if "error" in last:
        raise BackendError(str(last["error"]))
    if status != 0 or "made" not in last:
        raise BackendError(f"building {name} ended with exit status {status}: {said.strip() or 'it said nothing'}")
    made = last["made"]
    return Built(made["name"], tuple(made["files"]), made["log"])


def trouble(path: str) -> str | None:
    """Load a plugin in a process of its own; return why it cannot be used here and now, or None."""
    command = [sys.executable, "-m", "whispyx.plugins", "--json", "--backend", path]
    parent = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [parent, os.environ.get("PYTHONPATH")]))}
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LOAD_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {_LOAD_SECONDS} seconds"
    if done.returncode < 0:
        return f"it ended the process that loaded it ({signal.Signals(-done.returncode).name})"
    try:
        error: str | None = json.loads(done.stdout)["error"]
    except (ValueError, KeyError):
        return f"the process that loaded it ended with status {done.returncode}: {done.stderr.strip()[-500:]}"
    return error


def _follow(
    lines: Any, step: Callable[[str], None] | None, progress: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """Pass events on as they come; return the last one."""
    event: dict[str, Any] = {}
    for line in lines:
        event = json.loads(line)
        if "step" in event and step is not None:
            step(event["step"])
        if "total" in event and progress is not None:
            progress(event["done"], event["total"])
    return event


def remove(name: str, folder: Path) -> list[Path]:
    """Remove a plugin that `build` put into a folder; return what was removed.

    Raises
    ------
    BackendNotFoundError
        Nothing of that name was built there.
    """
    note = folder / f"{name}.build.json"
    try:
        record = json.loads(note.read_text(encoding="utf-8"))
        files, beside = list(record["files"]), set(record["beside"])
    except FileNotFoundError:
        raise BackendNotFoundError(f"no plugin {name!r} was built into {folder}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackendError(f"{note} cannot be read: {error}") from error
    for other in folder.glob("*.build.json"):
        if other != note:  # a library that another plugin needs stays
            beside -= set(json.loads(other.read_text(encoding="utf-8"))["beside"])
    removed = []
    for file in (*files, *sorted(beside), note.name):
        path = folder / file
        if path.exists():
            path.unlink()
            removed.append(path)
    return removed
