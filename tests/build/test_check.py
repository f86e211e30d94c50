"""tools/check.py finds what it is there to find."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools import check


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one good file and one that git ignores."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed here")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/ignored.py\n", encoding="utf-8")
    (tmp_path / "good.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "ignored.py").write_text("y = 1  \n" * 600, encoding="utf-8")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    return tmp_path


def test_a_clean_repository_passes(repository: Path) -> None:
    assert [path.name for path in check.sources()] == [".gitignore", "good.py"]
    assert check.sizes([]) and check.hygiene([])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n" * 501, "501 lines"),
        ("x" * 121 + "\n", "long.py:1: 121 characters"),
    ],
)
def test_a_file_that_is_too_long_or_too_wide(
    repository: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    (repository / "long.py").write_text(text, encoding="utf-8")
    assert not check.sizes([])
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("see /" + "tmp/x\n", "a path of one machine"),
        ("from https://" + "pypi" + ".org/simple\n", "the host of a package index"),
        ("as in issue " + "2\n", "the number of an issue"),
        ("# TO" + "DO later\n", "a note to finish later"),
        ("x = 1 \n", "ends in blanks"),
    ],
)
def test_text_that_does_not_belong(repository: Path, capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    (repository / "notes.md").write_text("fine\n" + text, encoding="utf-8")
    assert not check.hygiene([])
    assert f"notes.md:2: holds {says}" in capsys.readouterr().out.replace("notes.md:2: ends", "notes.md:2: holds ends")


@pytest.mark.parametrize("text", ["$ORIGIN/" + "tmp/x\n", "a/" + "work/b\n", "an issue with 2 cores\n"])
def test_text_that_only_looks_like_it_passes(repository: Path, text: str) -> None:
    (repository / "notes.md").write_text(text, encoding="utf-8")
    assert check.hygiene([])


def test_built_files_are_not_kept(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "lib.so").write_bytes(b"\x7fELF")
    assert not check.hygiene([])
    assert "lib.so: built files" in capsys.readouterr().out


def test_what_a_program_left_behind_is_not_kept(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "core").write_bytes(b"\x7fELF\x02\x01\x00" * 100)
    assert not check.hygiene([])
    assert "core: is neither text nor sound" in capsys.readouterr().out
    (repository / "core").unlink()
    (repository / "voice.flac").write_bytes(b"fLaC\x00\xff")
    assert check.hygiene([])
