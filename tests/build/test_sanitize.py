"""tools/sanitize.py fails when a sanitizer has something to say, and the kernels give it no reason to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import sanitize

PROGRAM = """
#include <stdlib.h>
int main(void) {
    char * p = malloc(64);
    volatile int at = %s;
    int x = *(volatile %s *) (p + at);
    free(p);
    return x & 0;
}
"""


@pytest.mark.parametrize(
    ("at", "kind", "expected"),
    [("4", "int", 0), ("1", "int", 1), ("64", "char", 1)],
    ids=["nothing wrong", "misaligned", "behind the end"],
)
def test_what_a_sanitizer_reports_is_a_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], at: str, kind: str, expected: int
) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed here")
    (tmp_path / "program.c").write_text(PROGRAM % (at, kind), encoding="utf-8")
    command = [compiler, "-g", "-fsanitize=address,undefined", "-o", tmp_path / "program", tmp_path / "program.c"]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("this gcc has no sanitizers")
    found = sanitize.run([str(tmp_path / "program")], {"ASAN_OPTIONS": "detect_leaks=0"})
    assert (found != 0) == (expected != 0)
    assert ("program.c:6" in capfd.readouterr().err) == (expected != 0)


@pytest.mark.skipif(
    os.environ.get("WHISPYX_SLOW_TESTS", "") in ("", "0"), reason="takes a minute: set WHISPYX_SLOW_TESTS=1"
)
def test_the_sanitizers_find_nothing_in_encoder_and_decoder(tmp_path: Path) -> None:
    """In the set that most machines have; the command runs the other tests and sets, too."""
    if shutil.which("gcc") is None or " avx2 " not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("needs gcc and AVX2")
    tests = ["tests/kernels/test_encoder.py", "tests/kernels/test_decoder.py"]
    command = [sys.executable, "tools/sanitize.py", "kernels", "--sets", "avx2", "--into", str(tmp_path)]
    done = subprocess.run(
        [*command, "--", *tests], cwd=sanitize.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "passed" in done.stdout
