"""backends/blas/distribution: a plugin as a Python distribution of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import whispyx
from tests.plugins.toolkit import ROOT, python

SOURCE = ROOT / "backends" / "blas" / "distribution"
PARENT = Path(whispyx.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(
    built: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], NoReturn]
) -> Path:
    """The wheel, built where whispyx is at hand."""
    for module in ("setuptools", "pip"):
        if importlib.util.find_spec(module) is None:
            lacking(f"no {module} to build a wheel with")
    built("blas")  # compiled once; the wheel's build finds it done
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(SOURCE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-w",
        str(folder),
    ]
    env = {**os.environ, "PYTHONPATH": str(PARENT)}
    done = subprocess.run(
        [*command, str(folder / "source")], env=env, capture_output=True, text=True, timeout=1200, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("whispyx_backend_blas-*.whl")
    return made


def test_the_wheel_holds_the_plugin_and_not_openblas(wheel: Path) -> None:
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    libraries = [name for name in names if name.endswith(".so")]
    assert libraries == ["whispyx_backend_blas/libggml-blas.so"]
    assert f"Requires-Dist: whispyx=={whispyx.__version__}" in metadata
    assert "Requires-Dist: scipy-openblas32" in metadata


def test_another_environment_that_has_it_uses_it(wheel: Path, built: Callable[[str], Path], tmp_path: Path) -> None:
    target = tmp_path / "environment"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    # The package that it depends on, from what the build of the plugin was linked to.
    openblas = target / "scipy_openblas32" / "lib"
    openblas.mkdir(parents=True)
    (openblas.parent / "__init__.py").touch()
    shutil.copy(built("blas") / "libscipy_openblas.so", openblas)
    env = {"PYTHONPATH": os.pathsep.join([str(PARENT), str(target)])}
    shown = python("whispyx.plugins", "--json", "--backend", "blas", env=env, flags=["-m"])
    assert shown.returncode == 0, shown.stdout + shown.stderr
    report = json.loads(shown.stdout)
    (record,) = [record for record in report["found"] if record["name"] == "blas"]
    assert record["path"] == str(target / "whispyx_backend_blas" / "libggml-blas.so")
    assert record["source"] == "entry point blas"
    assert f"libscipy_openblas.so comes from {openblas}" in record["notes"]
    assert report["selected"] == ["BLAS", "CPU"]
