"""A file appears whole or not at all, and only what befalls the file itself is called an error of writing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models.formats.same_weights import ctranslate2
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel
from whispyx._files import WholeFile
from whispyx.conversion import convert
from whispyx.errors import ModelError
from whispyx.models.convert import convert as convert_ct2

Write = Callable[..., object]

# A file that outgrows the limit fails as on a full disk, with another number.
LIMITED = """
import resource, sys
from whispyx.conversion import convert
from whispyx.errors import ModelError
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    convert(sys.argv[1], sys.argv[2])
except ModelError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel().write(tmp_path_factory.mktemp("model") / "model.bin")


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ctranslate2(read_model(model), tmp_path_factory.mktemp("ct2") / "model")


@pytest.mark.parametrize("name", ["a.bin", "a.gguf"])
@pytest.mark.parametrize("write", [convert, convert_ct2], ids=["any form", "the store"])
def test_an_error_of_whoever_is_told_of_the_progress_stays_what_it_is(
    write: Write, name: str, folder: Path, tmp_path: Path
) -> None:
    """It was called an error of writing where it was an OSError, such as that of a closed pipe."""

    def told(*progress: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader went away")

    with pytest.raises(BrokenPipeError, match="the reader went away"):
        write(folder, tmp_path / name, progress=told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.bin", "a.gguf"])
def test_a_file_that_cannot_grow_is_told_and_leaves_what_was_there(name: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"what was there")
    command = [sys.executable, "-c", LIMITED, str(model), str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith(f"{tmp_path / name} could not be written: ")
    assert (tmp_path / name).read_bytes() == b"what was there"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_that_cannot_be_kept_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(os, "fsync", refuse)
    told = r"a\.bin could not be written: the disk is gone"
    with pytest.raises(ModelError, match=told), WholeFile(tmp_path / "a.bin") as out:
        out.write(b"some")
    assert list(tmp_path.iterdir()) == []


def test_modes_follow_the_umask_and_names_may_be_long(tmp_path: Path) -> None:
    target = tmp_path / "new" / ("n" * 250)
    before = os.umask(0o027)
    try:
        with WholeFile(target) as out:
            out.write(b"all of it")
    finally:
        os.umask(before)
    assert target.read_bytes() == b"all of it"
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(target.parent.iterdir()) == [target]
