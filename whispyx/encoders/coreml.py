"""The encoder on Apple's CoreML, through the Python package coremltools. Works on macOS only."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whispyx.errors import BackendLoadError, BackendNotFoundError, BackendUnsupportedError, ComputeError, ParamsError

from .openvino_ir import encoder_path, path_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["CoreMlEncoder", "available"]

SUFFIX: Final = "-encoder.mlmodelc"
UNITS: Final = {"ALL": "ALL", "CPU": "CPU_ONLY", "GPU": "CPU_AND_GPU", "NPU": "CPU_AND_NE"}


def available() -> bool:
    """Whether CoreML can be used here."""
    return platform.system() == "Darwin" and importlib.util.find_spec("coremltools") is not None


class CoreMlEncoder:
    """An encoder that CoreML computes.

    Parameters
    ----------
    path : path
        The encoder's ``.mlmodelc`` or ``.mlpackage`` folder, as made for whisper.cpp: its input is "logmel_data",
        (1, n_mels, 2 * n_audio_ctx), its first output the features.
    device : {"ALL", "CPU", "GPU", "NPU"}
        What CoreML may use beside the CPU.

    Raises
    ------
    BackendUnsupportedError
        This is not macOS.
    BackendNotFoundError
        coremltools is not installed.
    BackendLoadError
        CoreML does not take the file.
    """

    def __init__(self, path: str | os.PathLike[str], device: str = "ALL") -> None:
        self.path = path_text(path, "an encoder's path")
        try:
            self.check_device(device)
        except BackendUnsupportedError as error:
            raise BackendUnsupportedError(f"{self.path}: {error}") from None
        self.name = f"CoreML ({self.path})"
        try:
            tools = importlib.import_module("coremltools")
            units = getattr(tools.ComputeUnit, UNITS[device])
            kind = (
                tools.models.CompiledMLModel if self.path.rstrip(os.sep).endswith(".mlmodelc") else tools.models.MLModel
            )
            self._model: Any = kind(self.path, compute_units=units)
        except Exception as error:  # coremltools raises plain exceptions of many kinds
            raise BackendLoadError(f"CoreML does not take {self.path}: {error}") from error

    @staticmethod
    def check_device(device: str = "ALL") -> str:
        """Return what would compute, in words; raises where CoreML or the device cannot be had."""
        if platform.system() != "Darwin":
            raise BackendUnsupportedError(f"CoreML is a part of macOS: it cannot be used on {platform.system()}")
        if not available():
            raise BackendNotFoundError("coremltools is not installed: pip install coremltools")
        if not isinstance(device, str) or device not in UNITS:
            raise ParamsError(f"CoreML has no device {device!r} (expected one of {', '.join(UNITS)})")
        return f"CoreML on {device}"

    @classmethod
    def for_model(cls, model: str | bytes | bytearray | memoryview, device: str = "ALL") -> CoreMlEncoder:
        """Take the encoder beside a ggml model; the name has no mark of a quantised model, as for whisper.cpp."""
        if not isinstance(model, str):
            raise ParamsError(
                "a CoreML encoder lies beside its model's file; this model has no path: give the encoder's"
            )
        plain = re.sub(r"-q\d_[\dk](?=\.[^.]*$)", "", model, flags=re.IGNORECASE)
        return cls(encoder_path(plain, SUFFIX), device)

    def whispyx_check(self, n_mels: int, n_audio_ctx: int, n_audio_state: int) -> None:
        """Compiled CoreML models do not tell their sizes: a model that does not fit is found by its first window."""

    def whispyx_session(self, n_mels: int, n_audio_ctx: int, n_audio_state: int) -> _Session:
        """Return a session; CoreML's models may be used by several threads."""
        return _Session(self, self._model, n_audio_ctx)


class _Session:
    def __init__(self, encoder: CoreMlEncoder, model: Any, n_audio_ctx: int) -> None:
        self._encoder, self._model, self._n_audio_ctx = encoder, model, n_audio_ctx

    def run(self, mel: NDArray[np.float32], n_threads: int, stop: Callable[[], bool]) -> NDArray[np.float32] | None:
        """Compute a window; see `whispyx.encoders.Session`. CoreML chooses its threads and cannot be stopped."""
        if mel.shape[1] != 2 * self._n_audio_ctx:
            raise ParamsError(f"{self._encoder.name} knows whole windows only, no shorter ones (audio_ctx)")
        try:
            found = self._model.predict({"logmel_data": mel[np.newaxis]})
        except Exception as error:  # coremltools raises plain exceptions of many kinds
            raise ComputeError(f"{self._encoder.name} failed: {error}") from error
        output = np.asarray(next(iter(found.values())), dtype=np.float32)
        return np.ascontiguousarray(output.reshape(output.shape[-2:]))

    def close(self) -> None:
        """Nothing is held by a session."""
