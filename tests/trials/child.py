"""Runs a part of a trial in a process of its own: how it ends and what it prints are part of the result.

    outcome = child.run(function, "tiny.en", timeout=300)

`function` is a function of a module below tests/, its arguments and what it returns are plain values (JSON).
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import data

ROOT = Path(__file__).resolve().parents[2]

SLOW = os.environ.get("WHISPYX_SLOW_TESTS", "") not in ("", "0")
slow = pytest.mark.skipif(not SLOW, reason="takes a minute or more: set WHISPYX_SLOW_TESTS=1")
ALL = os.environ.get("WHISPYX_SLOW_TESTS", "") == "all"
slowest = pytest.mark.skipif(not ALL, reason="takes many minutes: set WHISPYX_SLOW_TESTS=all")


def model(name: str) -> Path:
    """Path of a real model, which the parent has fetched."""
    return data.model_file(name)


def heads(name: str, ctx: Any) -> Any:
    """The alignment heads that whisper.cpp lists for a model of this name."""
    from whispyx._core.align.heads import resolve

    return resolve(name, 0, None, ctx.hparams)


def run(function: Callable[..., Any], *arguments: Any, timeout: float = 1200, environment: Any = None) -> Any:
    """Return what `function` returns; fail when it raises, prints anything (I5), or its process does not end well."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    with tempfile.TemporaryDirectory(prefix="whispyx-trial-") as folder:
        answer = Path(folder) / "answer.json"
        module = ".".join(Path(inspect.getfile(function)).relative_to(ROOT).with_suffix("").parts)
        command = [sys.executable, "-m", "tests.trials.child", f"{module}:{function.__qualname__}"]
        done = subprocess.run(
            [*command, json.dumps(arguments), str(answer)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", **(environment or {})},
            # Whoever runs the tests in the background may have switched Ctrl-C off, which children inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        said = (done.stdout + done.stderr).decode("utf-8", "backslashreplace")
        if done.returncode < 0:
            raise AssertionError(f"ended by {signal.Signals(-done.returncode).name}: {said[-4000:]}")
        outcome = json.loads(answer.read_text("utf-8")) if answer.exists() else {"error": "no answer"}
    if "error" in outcome:
        raise AssertionError(f"in the child process:\n{outcome['error']}\n{said[-4000:]}")
    assert done.returncode == 0, f"exit status {done.returncode}: {said[-4000:]}"
    assert said == "", f"I5: it printed {said[-4000:]!r}"
    return outcome["result"]


def main(name: str, arguments: str, answer: str) -> None:
    module, _, function = name.partition(":")
    try:
        outcome = {"result": getattr(importlib.import_module(module), function)(*json.loads(arguments))}
    except BaseException:
        outcome = {"error": traceback.format_exc()}
    Path(answer).write_text(json.dumps(outcome), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
