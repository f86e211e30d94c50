"""Builds one plugin against the base library of an installed whispyx.

Started by `whispyx backends build` as a process of its own, from the source tree or from the kit that an installation
carries. One JSON request comes on standard input; what happens goes to standard output, one JSON object a line:
`{"step": words}`, `{"done": n, "total": n}`, `{"made": {...}}`, and at most one `{"error": words}` at the end.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.build import ROOT, BuildError, vendor
from tools.build.compiling import GGML_OPTIONS, Step
from tools.build.config import BuildConfig
from tools.build.locking import one_at_a_time
from tools.build.native import install_file
from tools.build.plugin import Compilation
from tools.build.plugins import lacking, manifest_of, numbered
from tools.build.shared import manifest

__all__ = ["Request", "build", "main"]

_COUNT: Final = re.compile(r"\[(\d+)/(\d+)\]")
_OPTION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS: Final = frozenset({*GGML_OPTIONS, "BUILD_SHARED_LIBS", "CMAKE_MAKE_PROGRAM", "GIT_EXE"})
"""Options that make a plugin one that whispyx can load."""


@dataclass(frozen=True)
class Request:
    """What is wanted.

    Attributes
    ----------
    name : str
        The backend.
    base : pathlib.Path
        The base library to link to.
    into : pathlib.Path
        Where the plugin's files are put.
    cache : pathlib.Path
        Where the source, the programs and the build folders are kept.
    settings : mapping of str to str
        CMake options of the user.
    jobs : int or None
        Compilers side by side; None for `WHISPYX_BUILD_JOBS`, or the number of cores.
    bundle : bool
        Whether libraries of Python packages are copied beside the plugin.
    """

    name: str
    base: Path
    into: Path
    cache: Path
    settings: Mapping[str, str]
    jobs: int | None = None
    bundle: bool = True


def main() -> int:
    """Read the request, build, and return the exit status."""
    sys.stdout = sys.stderr  # what other parts print does not belong among the events
    try:
        data = json.loads(sys.stdin.read())
        data |= {name: Path(data[name]) for name in ("base", "into", "cache")}
        build(Request(**data))
    except BuildError as error:
        _tell(error=" ".join(str(error).split()))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _tell(**event: Any) -> None:
    print(json.dumps(event), file=sys.__stdout__, flush=True)


def build(request: Request) -> None:
    """Make the plugin and put it into place."""
    config = BuildConfig.from_env()
    backend = manifest_of(request.name)
    _check(backend, request.settings)
    _require(backend, request.settings)
    _require_writable(request.into)
    _require_writable(request.cache)
    _build(request, backend, config)


def _check(backend: manifest.Manifest, settings: Mapping[str, str]) -> None:
    if not backend.build.targets:
        ways = [f"{probe.what} ({probe.hint or f'pip install {probe.pypi}'})" for probe in backend.run.probes]
        raise BuildError(f"{backend.name} is no plugin to compile: {backend.description}. It needs: {'; '.join(ways)}")
    for name in settings:
        if not _OPTION.fullmatch(name):
            raise BuildError(f"'{name}' is not the name of a CMake option.")
        if name in _OURS or name.startswith("WHISPYX_"):
            raise BuildError(f"{name} cannot be set: whispyx could not load a plugin that is built otherwise.")


def _require(backend: manifest.Manifest, settings: Mapping[str, str]) -> None:
    """Raise BuildError with all that is missing at once."""
    found = lacking(backend, settings)
    if found:
        raise BuildError(f"{backend.name} cannot be built here yet. {numbered(found)}")


def _require_writable(folder: Path) -> None:
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BuildError(f"{folder} cannot be written to ({error.strerror}: {error.filename}).") from error


def _build(request: Request, backend: manifest.Manifest, config: BuildConfig) -> None:
    job = Compilation(
        backend,
        config,
        base=request.base,
        store=request.cache / "packages",
        tell=lambda words: _tell(step=words),
        settings=request.settings,
    )
    # What all builds share is held for as long as it takes to fetch; a compilation of hours holds only its own folder.
    with one_at_a_time(request.cache / ".lock", lambda: _tell(step="waiting for another build to fetch what it needs")):
        ready = job.prepare()
        tree = _source(request.cache, config)
    folder = _folder(request, tree)
    folder.parent.mkdir(exist_ok=True)
    log = folder.with_suffix(".log")
    with one_at_a_time(folder.with_suffix(".lock"), lambda: _tell(step="waiting for another build of it to end")):
        log.write_text("", encoding="utf-8")
        libraries = job.run(ready, folder, tree, _logged(log), request.jobs or config.jobs)
        # What is linked to comes first: a plugin that is there can be loaded.
        beside = ready.beside if request.bundle else ()
        made = [install_file(path, request.into / path.name) for path in (*beside, *libraries)]
    record = {
        "name": backend.name,
        "files": [path.name for path in libraries],
        "beside": [path.name for path in beside],
        "ggml": vendor.read_pin().ggml_version,
        "settings": dict(request.settings),
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
    note = request.into / f"{backend.name}.build.json"
    _remove_stale(note, [path.name for path in made])
    note.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _tell(made={"name": backend.name, "files": [str(path) for path in made[len(beside) :]], "log": str(log)})


def _remove_stale(note: Path, made: list[str]) -> None:
    """Remove what an earlier build of the same backend put beside `note` and this one did not."""
    try:
        record = json.loads(note.read_text(encoding="utf-8"))
        before = [*record["files"], *record["beside"]]
    except (OSError, ValueError, KeyError, TypeError):
        return  # there was none, or none that tells
    for name in before:
        if name not in made and Path(name).name == name:
            (note.parent / name).unlink(missing_ok=True)


def _source(cache: Path, config: BuildConfig) -> Path:
    """Return the ggml tree: the user's, that of a source tree when it is the pinned one, or one kept in the cache."""
    if config.ggml_source is not None:
        return vendor.source_tree(config)
    digest, here = vendor.pinned()
    if here:
        return vendor.VENDOR / "ggml"
    target = cache / f"ggml-{digest}"
    if not target.is_dir():
        _tell(step="getting ggml's source")
    return vendor.ensure(offline=config.offline, target=target)


def _folder(request: Request, tree: Path) -> Path:
    """Return the build folder: one for each backend and base library."""
    place = hashlib.sha256(f"{request.base}\n{ROOT}\n{tree}".encode()).hexdigest()[:12]
    return request.cache / "build" / f"{request.name}-{place}"


def _logged(log: Path) -> Step:
    """Return a way to run commands that keeps their output in `log` and tells how far they are."""

    def step(command: list[str], what: str) -> None:
        _tell(step=what)
        env = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
        with log.open("a", encoding="utf-8", errors="replace") as kept:
            print("$", *command, file=kept, flush=True)
            child = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
            assert child.stdout is not None
            last: deque[str] = deque(maxlen=500)
            try:
                for line in child.stdout:
                    kept.write(line)
                    last.append(line.strip())
                    if counted := _COUNT.match(line):
                        _tell(done=int(counted[1]), total=int(counted[2]))
                status = child.wait()
            except BaseException:
                child.terminate()
                child.wait()
                raise
        if status != 0:
            raise BuildError(
                f"{what[0].upper()}{what[1:]} failed with exit status {status}; all that was printed is in {log}. "
                f"Among it: {_gist(list(last))}"
            )

    return step


def _gist(lines: list[str]) -> str:
    """Return the first error in the output of a compiler, or of CMake, whose errors are paragraphs."""
    for number, line in enumerate(lines):
        if line.startswith("CMake Error"):
            after = lines[number + 1 :]
            start = next((i for i, text in enumerate(after) if text), len(after))
            paragraph = [*after[start:], ""]
            return " ".join([line, *paragraph[: paragraph.index("")]])
    errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return errors[0] if errors else next((line for line in reversed(lines) if line), "nothing")


if __name__ == "__main__":
    sys.exit(main())
