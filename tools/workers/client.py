"""Talks to a worker: a process of its own, so that a crash there is an error here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent


class WorkerError(Exception):
    """The worker answered with an error, ended, or took too long."""


class Worker:
    """A running worker process.

    Parameters
    ----------
    script : path of a Python file that answers each JSON line on standard input with one on standard output.
    python : the interpreter to run it with.
    environment : variables to add to ours.
    timeout : seconds that one command may take before the worker is ended.
    defaults : by command, the arguments that are sent where a call does not give them.
    """

    def __init__(
        self,
        script: Path,
        python: str | Path = sys.executable,
        environment: Mapping[str, str] | None = None,
        timeout: float = 600,
        defaults: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.timeout = timeout
        self.defaults = defaults or {}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        self.process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def __call__(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send command `do` and wait for the answer."""
        assert self.process.stdin and self.process.stdout
        guard = threading.Timer(self.timeout, self.process.kill)
        guard.start()
        try:
            self.process.stdin.write(json.dumps({"do": do, **self.defaults.get(do, {}), **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            guard.cancel()
        if not line:
            raise WorkerError(f"{do}: the worker {self._ending()}\n{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{do}: {answer['error']}")
        return answer

    def _ending(self) -> str:
        code = self.process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    def _last_words(self) -> str:
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def close(self) -> None:
        """End the worker by closing its input. Closing twice is fine."""
        if self.process.stdin:
            self.process.stdin.close()
        if self.process.stdout:
            self.process.stdout.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def whispercpp(python: str | Path, **options: Any) -> Worker:
    """Start whisper.cpp in the environment whose interpreter is `python`."""
    return Worker(FOLDER / "whispercpp.py", python, **options)


def whispyx(python: str | Path = sys.executable, **options: Any) -> Worker:
    """Start whispyx."""
    return Worker(FOLDER / "whispyx_core.py", python, **options)


def torch(python: str | Path, **options: Any) -> Worker:
    """Start OpenAI's engine and transformers in the environment whose interpreter is `python`."""
    return Worker(FOLDER / "torch_peer.py", python, **options)
