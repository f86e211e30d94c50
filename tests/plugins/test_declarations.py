"""What cffi knows of the C functions is what is declared."""

from __future__ import annotations

import subprocess
import sys

import pytest

from whispyx.plugins import declarations


def test_the_kept_result_is_what_cffi_makes_of_the_declarations() -> None:
    pytest.importorskip("cffi")
    kept = declarations.TARGET.read_text("utf-8")
    assert kept == declarations.generated(), "run python -m whispyx.plugins.declarations"


def test_a_program_that_loads_plugins_reads_no_declarations() -> None:
    code = "import sys; import whispyx.plugins as p; p.load(); print('pycparser' in sys.modules, 'cffi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr
