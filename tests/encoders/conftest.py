from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import whispyx.plugins
from tests.core.tiny import pair
from tests.encoders.openvino_kit import RECIPE
from whispyx.encoders import openvino as ours


@pytest.fixture(scope="session", autouse=True)
def loaded() -> None:
    """The plugins, for tests that open models without `Model`."""
    whispyx.plugins.load()


@pytest.fixture(scope="session")
def openvino(lacking: Callable[[str], NoReturn]) -> Any:
    """OpenVINO's package; skips, or fails where peers are required, when it is not installed."""
    if not ours.available():
        lacking("openvino is not installed: pip install 'whispyx[openvino]'")
    return pytest.importorskip("openvino")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model file in a folder of its own."""
    return str(shutil.copy(pair(RECIPE).path, tmp_path / "ggml-tiny.random.bin"))
