"""Whisper speech recognition on ggml backends that are loaded at run time.

>>> import whispyx
>>> with whispyx.Model("tiny.en") as model:  # doctest: +SKIP
...     for segment in model.transcribe("speech.wav"):
...         print(segment.start, segment.text)

Importing this package loads nothing else: each name brings its module along when it is first used.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ._version import __version__

# Without a handler of its own, a program that has not set up logging would see our warnings on standard error.
logging.getLogger(__name__).addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from . import writers
    from .conversion import ModelDescription, inspect_model
    from .errors import (
        Aborted,
        AudioError,
        BackendAbiError,
        BackendError,
        BackendLoadError,
        BackendNotFoundError,
        BackendUnsupportedError,
        ComputeError,
        ComputeMemoryError,
        DeviceError,
        LanguageError,
        ModelError,
        ModelFormatError,
        ModelNotFoundError,
        ParamsError,
        StateError,
        WhispyxError,
    )
    from .model import Model, transcribe
    from .options import TranscribeOptions
    from .results import DetectedLanguage, ModelInfo, Segment, Timings, Token, Transcript
    from .runner import Runner, StageTimes

__all__ = [
    "Aborted",
    "AudioError",
    "BackendAbiError",
    "BackendError",
    "BackendLoadError",
    "BackendNotFoundError",
    "BackendUnsupportedError",
    "ComputeError",
    "ComputeMemoryError",
    "DetectedLanguage",
    "DeviceError",
    "Devices",
    "Fallback",
    "LanguageError",
    "Model",
    "ModelDescription",
    "ModelError",
    "ModelFormatError",
    "ModelInfo",
    "ModelNotFoundError",
    "ParamsError",
    "Runner",
    "Segment",
    "StageTimes",
    "StateError",
    "Timings",
    "Token",
    "TranscribeOptions",
    "Transcript",
    "WhispyxError",
    "__version__",
    "inspect_model",
    "transcribe",
    "writers",
]

_HOMES: Final = {
    "DetectedLanguage": "results",
    "Devices": "results",
    "Fallback": "fallback",
    "Model": "model",
    "ModelDescription": "conversion",
    "ModelInfo": "results",
    "Runner": "runner",
    "Segment": "results",
    "StageTimes": "runner",
    "Timings": "results",
    "Token": "results",
    "TranscribeOptions": "options",
    "inspect_model": "conversion",
    "Transcript": "results",
    "transcribe": "model",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "writers":
        return import_module(".writers", __name__)
    value = getattr(import_module(f".{_HOMES.get(name, 'errors')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
