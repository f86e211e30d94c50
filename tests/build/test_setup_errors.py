"""`setup.py` tells in one paragraph what is missing and what to do, and ends with a status, not with a traceback."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import Setup, tree_files, write_tree


def paragraph(done: subprocess.CompletedProcess[str]) -> str:
    """The error message of a failed run, unfolded; asserts its form."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "whispyx build: " in done.stderr
    text = done.stderr[done.stderr.rindex("whispyx build: ") :].strip()
    assert "\n\n" not in text
    assert all(len(line) <= 100 for line in text.splitlines() if " " in line)
    return " ".join(text.split())


def test_no_compiler(setup: Setup, tmp_path: Path) -> None:
    text = paragraph(setup("build_ext", "--inplace", PATH=str(tmp_path), CC=None, CXX=None))
    assert "No C compiler was found" in text
    assert "apt-get install" in text and "set CC" in text


def test_a_compiler_that_does_not_exist(setup: Setup) -> None:
    text = paragraph(setup("build_ext", "--inplace", CXX="no-such-c++ -O2"))
    assert "CXX names 'no-such-c++', which does not exist" in text


def test_no_network(setup: Setup, checkout: Path) -> None:
    text = paragraph(setup("build_ext", "--inplace", PIP_FIND_LINKS=str(checkout)))
    assert "could not be fetched with pip" in text
    assert "WHISPYX_GGML_SOURCE" in text and "PIP_FIND_LINKS" in text
    assert not (checkout / "vendor" / "ggml").exists()


def test_no_network_while_making_a_source_distribution(setup: Setup, checkout: Path) -> None:
    assert "could not be fetched with pip" in paragraph(setup("sdist"))
    assert not (checkout / "dist").exists()


def test_offline(setup: Setup) -> None:
    assert "WHISPYX_BUILD_OFFLINE=1 forbids" in paragraph(setup("build_ext", WHISPYX_BUILD_OFFLINE="1"))


def test_wrong_hash(setup: Setup, checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "libggml_python-0.20.2.post1.tar.gz").write_bytes(b"not the archive that was pinned")
    text = paragraph(setup("build_ext", "--inplace", PIP_FIND_LINKS=str(tmp_path)))
    assert "e47ff53506342959ffb3ce15380b82828fea10ec5f208f9ef6915895f1a7a176" in text
    assert "Fetch again" in text
    assert not (checkout / "vendor" / "ggml").exists()


def test_wrong_ggml_version(setup: Setup, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "mine", tree_files("0.19.0"))
    text = paragraph(setup("build_ext", "--inplace", WHISPYX_GGML_SOURCE=str(tree)))
    assert "holds ggml 0.19.0, but this whispyx is made for ggml 0.20.2" in text


def test_a_folder_that_is_not_ggml(setup: Setup, tmp_path: Path) -> None:
    text = paragraph(setup("build_ext", "--inplace", WHISPYX_GGML_SOURCE=str(tmp_path / "nothing")))
    assert "not a ggml source tree" in text


@pytest.mark.parametrize("command", [["build_ext", "--inplace"], ["sdist"], ["egg_info"]], ids=lambda words: words[0])
def test_a_tree_that_cannot_be_written(setup: Setup, checkout: Path, command: list[str]) -> None:
    (checkout / "build").touch()  # a file where a folder should be fails for every user, root too
    text = paragraph(setup(*command))
    assert "cannot be written to" in text and "Copy the tree" in text


def test_an_unknown_variant(setup: Setup) -> None:
    text = paragraph(setup("build_ext", "--inplace", WHISPYX_CPU_VARIANTS="pentium"))
    assert "'pentium'" in text and "haswell" in text
