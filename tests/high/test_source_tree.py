"""Python started in the folder of a source tree that was not built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import whispyx


def test_a_source_tree_that_was_not_built_says_what_to_do(tmp_path: Path) -> None:
    package = Path(whispyx.__file__).parent
    shutil.copytree(package, tmp_path / "whispyx", ignore=shutil.ignore_patterns("*.so", "*.pyd", "_native"))
    for module in ("whispyx.plugins", "whispyx devices"):
        command = [sys.executable, "-E", "-m", *module.split()]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert run.returncode != 0
        assert "has not been built" in run.stderr and "pip install -e ." in run.stderr
