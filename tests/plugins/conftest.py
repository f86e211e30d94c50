from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.plugins.toolkit import Compiler, python

ALWAYS = ("blas", "rpc")
"""Backends that need nothing but a compiler and a package index: where the peers are required, so are they."""


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    """A C compiler and ggml's headers; skips where there are none."""
    return Compiler()


@pytest.fixture(scope="session")
def example_folder(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds nothing but the example plugin, built out of tree."""
    folder = tmp_path_factory.mktemp("example")
    compiler.example(folder)
    return folder


def _lacking(name: str) -> str:
    """Return what is missing to build a backend, as `whispyx backends list` tells it."""
    done = python("whispyx", "backends", "list", "--json", flags=["-m"])
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in json.loads(done.stdout)["backends"] if row["name"] == name]
    return "; ".join(f"{missing['what']} ({missing['looked_for']})" for missing in row["missing"])


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], NoReturn]) -> Callable[[str], Path]:
    """Return the folder with a plugin of ours, built by `whispyx backends build` once in a run.

    The folders lie in the one that WHISPYX_TEST_PLUGINS names and stay there, else in a folder of this run. A test is
    skipped where something that the plugin needs is missing; blas and rpc fail then under WHISPYX_REQUIRE_PEERS=1.
    Others are not built, only used where they are there.
    """
    kept = os.environ.get("WHISPYX_TEST_PLUGINS", "")
    top = Path(kept).expanduser().absolute() if kept else tmp_path_factory.mktemp("plugins")
    answers: dict[str, str] = {}

    def folder_of(name: str) -> Path:
        folder = top / name
        if name not in ALWAYS:  # compiling one of these takes too long for a test: it is there already, or is not tried
            if not any(folder.glob(f"libggml-{name}*.so")):
                pytest.skip(f"{name} is not built: whispyx backends build {name} --into $WHISPYX_TEST_PLUGINS/{name}")
            return folder
        if name not in answers:
            answers[name] = _lacking(name)
            if not answers[name]:
                done = python("whispyx", "backends", "build", name, "--into", str(folder), flags=["-m"], seconds=3600)
                answers[name] = "" if done.returncode == 0 else f"building it failed: {done.stderr}"
        if answers[name].startswith("building it failed"):
            pytest.fail(f"{name}: {answers[name]}")
        if answers[name]:
            stop = lacking if name in ALWAYS else pytest.skip
            stop(f"{name} cannot be built here: {answers[name]}")
        return folder

    return folder_of
