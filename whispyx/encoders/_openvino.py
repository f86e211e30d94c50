"""The OpenVINO runtime: one place that imports it, and turns its failures into ours."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from typing import Any

from whispyx.errors import BackendLoadError, BackendNotFoundError

__all__ = ["available", "first_words", "runtime", "the_core"]

HINT = "pip install 'whispyx[openvino]'"


def available() -> bool:
    """Whether the Python package openvino is installed; it is not imported for this."""
    try:
        return importlib.util.find_spec("openvino") is not None
    except (ImportError, ValueError):
        return False


def runtime() -> Any:
    """Return the module openvino.

    Raises
    ------
    BackendNotFoundError
        It is not installed.
    BackendLoadError
        It cannot be loaded.
    """
    if not available():
        raise BackendNotFoundError(f"OpenVINO is not installed: {HINT}")
    try:
        module = importlib.import_module("openvino")
        importlib.import_module("openvino.opset13")
    except Exception as error:  # an incomplete installation fails in many ways
        raise BackendLoadError(f"OpenVINO is installed but cannot be loaded: {error} ({HINT})") from error
    return module


@functools.lru_cache(maxsize=1)
def _core(process: int) -> Any:
    return runtime().Core()


def the_core() -> Any:
    """Return this process's OpenVINO core; one from before a fork has lost its threads."""
    return _core(os.getpid())


def first_words(error: BaseException) -> str:
    """Return what OpenVINO's error says, without the places in its source that it lists first."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("Exception from", "Check '"))]
    return " ".join((said or lines)[:3])[:400]
