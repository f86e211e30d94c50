"""Python in a process of its own, for what must not happen to the one that tests."""

from __future__ import annotations

import os
import subprocess
import sys


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Run code with this process's environment and import path; its output is one stream."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def run(code: str, *arguments: str) -> tuple[int, str]:
    """Run code to its end; returns exit code and output."""
    child = start(code, *arguments)
    output, _ = child.communicate(timeout=60)
    return child.returncode, output
