"""What setup.py does beside compiling."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tools.build import ROOT, vendor
from tools.build.native import install_file

from .conftest import Setup


def test_files_of_an_earlier_build_do_not_stay(setup: Setup, checkout: Path) -> None:
    stale = checkout / "build" / "lib" / "whispyx" / "renamed_since.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    done = setup("build_py", "--build-lib", "build/lib")
    assert done.returncode == 0, done.stderr
    assert not stale.exists()
    assert (stale.parent / "errors.py").is_file()


def test_declarations_and_data_are_packaged(setup: Setup, checkout: Path) -> None:
    done = setup("build_py", "--build-lib", "build/lib")
    assert done.returncode == 0, done.stderr
    wanted = {
        path.relative_to(checkout)
        for path in (checkout / "whispyx").rglob("*")
        if path.is_file() and path.suffix not in (".pyx", ".pyc", ".sh")
    }
    made = {path.relative_to(checkout / "build" / "lib") for path in (checkout / "build" / "lib").rglob("*.*")}
    assert {path for path in wanted if path not in made} == set()
    assert not [path for path in made if path.suffix == ".so" or "_native" in path.parts]


def test_a_source_distribution_needs_no_second_download(setup: Setup, checkout: Path, tmp_path: Path) -> None:
    unpacked = ROOT / "vendor" / "ggml"
    if not (unpacked / vendor.STAMP).is_file():
        pytest.skip("vendor/ggml is not unpacked here (built from another tree)")
    (checkout / "vendor" / "ggml").symlink_to(unpacked, target_is_directory=True)
    shutil.copy(ROOT / "MANIFEST.in", checkout)
    (checkout / "whispyx" / "left.so").touch()
    done = setup("sdist", WHISPYX_BUILD_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    (archive,) = (checkout / "dist").glob("whispyx-*.tar.gz")
    with tarfile.open(archive) as tar:
        names = [name.partition("/")[2] for name in tar.getnames()]
        # Python 3.11.2, which Debian 12 has, does not know extraction filters yet.
        tar.extractall(tmp_path / "elsewhere", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    for name in ("setup.py", "tools/build/native.py", "backends/cpu/plugin.toml", "whispyx/_core/mel.pyx"):
        assert name in names
    assert not [name for name in names if name.endswith((".so", ".pyc")) or name.startswith("build/")]
    (tree,) = (tmp_path / "elsewhere").iterdir()
    command = [sys.executable, "-m", "tools.build", "--fetch"]
    env = {**os.environ, "WHISPYX_BUILD_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(tree / "vendor" / "ggml"), done.stderr


def test_a_library_in_use_is_replaced_not_overwritten(tmp_path: Path) -> None:
    old, new = tmp_path / "lib.so", tmp_path / "new" / "lib.so"
    new.parent.mkdir()
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    with old.open("rb") as in_use:
        install_file(new, old)
        assert in_use.read() == b"old", "whoever has it open keeps it"
    assert old.read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == [old, new.parent]


def test_a_library_that_did_not_change_is_left_alone(tmp_path: Path) -> None:
    old, same = tmp_path / "a.so", tmp_path / "b.so"
    old.write_bytes(b"same")
    same.write_bytes(b"same")
    before = old.stat()
    install_file(same, old)
    assert (old.stat().st_ino, old.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.skipif(os.name != "posix", reason="the lock between builds needs a POSIX system")
def test_a_second_build_waits_for_the_first(checkout: Path) -> None:
    (checkout / "build").mkdir()
    program = (
        "import sys, time\n"
        "from tools.build.commands import one_build_at_a_time\n"
        "with one_build_at_a_time():\n"
        "    print('in', flush=True); sys.stdin.read(); print('out', flush=True)\n"
    )

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program], cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    with start() as first, start() as second:
        said = [process.stdout.readline() for process in (first, second) if process.stdout]
        assert sorted(line.split()[0] for line in said) == ["in", "whispyx"], said
        holder, waiter = (first, second) if said[0] == "in\n" else (second, first)
        assert holder.stdin and holder.stdout and waiter.stdin and waiter.stdout
        holder.stdin.close()
        assert holder.stdout.read() == "out\n"
        assert waiter.stdout.readline() == "in\n"
        waiter.stdin.close()
        assert waiter.stdout.read() == "out\n"
    assert (first.returncode, second.returncode) == (0, 0)
