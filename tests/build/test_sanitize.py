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


def compile_program(folder: Path, at: str, kind: str) -> None:
    """Make a program that reads a value at a place in 64 bytes, or skip."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed here")
    (folder / "program.c").write_text(PROGRAM % (at, kind), encoding="utf-8")
    command = [compiler, "-g", "-fsanitize=address,undefined", "-o", folder / "program", folder / "program.c"]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("this gcc has no sanitizers")


@pytest.mark.parametrize(
    ("at", "kind", "expected"),
    [("4", "int", 0), ("1", "int", 1), ("64", "char", 1)],
    ids=["nothing wrong", "misaligned", "behind the end"],
)
def test_what_a_sanitizer_reports_is_a_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], at: str, kind: str, expected: int
) -> None:
    compile_program(tmp_path, at, kind)
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


@pytest.mark.parametrize(
    ("at", "kind", "ended", "files"), [("4", "int", 0, 0), ("1", "int", 1, 0), ("64", "char", 0, 1)],
    ids=["nothing wrong", "misaligned", "behind the end"],
)  # fmt: skip
def test_what_a_child_of_a_test_reports_is_a_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], at: str, kind: str, ended: int, files: int
) -> None:
    """Tests run programs and keep what those write. Undefined behaviour ends a program, else it would be overlooked; of
    an access out of bounds there is a report, even if nobody minds how the program ended."""
    compile_program(tmp_path, at, kind)
    logs = tmp_path / "logs"
    program = f"import subprocess; done = subprocess.run([{str(tmp_path / 'program')!r}], capture_output=True)\n"
    program += f"raise SystemExit({ended} and done.returncode)"
    variables = sanitize.reader_environment("gcc", logs)
    found = sanitize.watched([sys.executable, "-c", program], variables, tmp_path, logs)
    assert (found != 0) == bool(ended or files)
    assert len(list(logs.iterdir())) == files
    assert ("program.c:6" in capfd.readouterr().out) == bool(files)


def test_a_copy_of_the_tree_is_what_is_here_and_keeps_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, copy = tmp_path / "here", tmp_path / "copy"
    for name in ("setup.py", "whispyx/a.pyx", "whispyx/a.so", "whispyx/_native/b", "vendor/ggml/.pin", "tools/c.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(sanitize, "ROOT", here)
    monkeypatch.setattr(sanitize, "COPIED", ("setup.py",))
    sanitize.copy_tree(copy)
    (copy / "whispyx/a.built.so").touch()
    os.utime(copy / "whispyx/a.pyx", (1, 1))
    (here / "whispyx/d.py").touch()
    (here / "tools/c.py").unlink()
    sanitize.copy_tree(copy)
    found = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert found == {"setup.py", "whispyx/a.pyx", "whispyx/a.built.so", "whispyx/d.py", "vendor/ggml/.pin"}
    assert (copy / "whispyx/a.pyx").stat().st_mtime == 1, "what is the same is not compiled again"


@pytest.mark.skipif(
    not (sanitize.ROOT / "build/sanitize/tree").is_dir(),
    reason="'python tools/sanitize.py readers' builds what this needs, in some ten minutes",
)
def test_the_sanitizers_find_nothing_in_the_readers() -> None:
    """In damaged files of ggml and GGUF; the command runs the tests of all readers."""
    tests = ["tests/core/test_fuzz_loader.py", "tests/models/formats/test_gguf_refuses.py"]
    done = subprocess.run(
        [sys.executable, "tools/sanitize.py", "readers", "--", *tests],
        cwd=sanitize.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    assert "passed" in done.stdout
