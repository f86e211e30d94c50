from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.toolkit import Compiler


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
