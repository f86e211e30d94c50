"""Libraries inside of Python packages that a plugin is linked to: opened by their path, before the plugin."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugins.toolkit import ask
from whispyx.plugins import preload

LIBRARY = "libscipy_openblas.so"


@pytest.fixture
def alone(built: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder with the blas plugin, without the OpenBLAS it is linked to."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    shutil.copy(built("blas") / "libggml-blas.so", folder)
    return folder


def package(folder: Path, library: Path) -> str:
    """Make a package like scipy-openblas32 that cannot be imported; return the folder it lies in."""
    (folder / "scipy_openblas32" / "lib").mkdir(parents=True)
    (folder / "scipy_openblas32" / "__init__.py").write_text("raise SystemExit('imported')\n")
    shutil.copy(library, folder / "scipy_openblas32" / "lib")
    return str(folder)


def hidden(folder: Path) -> str:
    """Make a folder in which the package is there, and empty."""
    (folder / "scipy_openblas32").mkdir(parents=True)
    (folder / "scipy_openblas32" / "__init__.py").touch()
    return str(folder)


def test_the_library_is_taken_from_its_package_which_is_not_imported(
    alone: Path, built: Callable[[str], Path], tmp_path: Path
) -> None:
    where = package(tmp_path / "site", built("blas") / LIBRARY)
    code = f"sys.path.insert(0, {where!r})\nmaps = lambda: open('/proc/self/maps').read()\n"
    outcome, records, mapped = ask(
        code + "answer([attempt('blas'), found(), maps()])", env={"WHISPYX_BACKEND_PATH": str(alone)}
    )
    assert outcome["selected"] == ["BLAS", "CPU"]
    (record,) = [record for record in records if record["name"] == "blas"]
    assert f"{LIBRARY} comes from {where}/scipy_openblas32/lib" in record["notes"]
    assert {line.split()[-1] for line in mapped.splitlines() if LIBRARY in line} == {
        f"{where}/scipy_openblas32/lib/{LIBRARY}"
    }


def test_the_one_beside_the_plugin_is_used_before_the_package(built: Callable[[str], Path], tmp_path: Path) -> None:
    where = package(tmp_path / "site", built("blas") / LIBRARY)
    code = f"sys.path.insert(0, {where!r})\nmaps = lambda: open('/proc/self/maps').read()\n"
    mapped = ask(code + "attempt('blas'); answer(maps())", env={"WHISPYX_BACKEND_PATH": str(built("blas"))})
    assert {line.split()[-1] for line in mapped.splitlines() if LIBRARY in line} == {str(built("blas") / LIBRARY)}


def test_a_library_that_is_missing_is_told(alone: Path, tmp_path: Path) -> None:
    code = f"sys.path.insert(0, {hidden(tmp_path / 'site')!r})\n"
    outcome, records = ask(code + "answer([attempt('blas'), found()])", env={"WHISPYX_BACKEND_PATH": str(alone)})
    assert "BackendLoadError" in outcome["kinds"]
    assert LIBRARY in outcome["error"]
    (record,) = [record for record in records if record["name"] == "blas"]
    assert any("scipy_openblas32" in note and "is not here" in note for note in record["notes"])


def test_a_library_that_is_damaged_is_told_and_kills_nothing(
    alone: Path, built: Callable[[str], Path], tmp_path: Path
) -> None:
    where = package(tmp_path / "site", built("blas") / LIBRARY)
    os.truncate(Path(where, "scipy_openblas32", "lib", LIBRARY), 100_000)
    code = f"sys.path.insert(0, {where!r})\n"
    outcome, records = ask(code + "answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(alone)})
    assert outcome["loaded"] == ["cpu"]
    (record,) = [record for record in records if record["name"] == "blas"]
    assert any("cannot be opened" in note and "truncated" in note for note in record["notes"])


def test_a_plugin_without_a_manifest_or_without_that_need_opens_nothing(built: Callable[[str], Path]) -> None:
    assert preload.for_plugin("nobody", str(built("blas") / "libggml-blas.so")) == []
    assert preload.for_plugin("blas", str(built("rpc") / "libggml-rpc.so")) == []


def test_every_place_of_a_namespace_package_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("one", "two"):
        (tmp_path / place / "vendor_of_things" / place).mkdir(parents=True)
        monkeypatch.syspath_prepend(str(tmp_path / place))
    library = tmp_path / "one" / "vendor_of_things" / "one" / "libthing.so"
    library.touch()
    assert preload.find("vendor_of_things/one/libthing.so") == library
    assert preload.find("vendor_of_things/two/libthing.so") is None
    assert preload.find("nobody/libthing.so") is None
