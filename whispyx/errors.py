"""What can go wrong, as types. Each class is also the builtin a caller would expect to catch.

Every error carries `code` (the status the C API returns for it, or None), `where` (the C function that returns it,
or None) and `log` (the engine's last log line, or None).
"""

from __future__ import annotations

from typing import Any, Final

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
    "DeviceError",
    "LanguageError",
    "ModelError",
    "ModelFormatError",
    "ModelNotFoundError",
    "ParamsError",
    "StateError",
    "WhispyxError",
    "error_for",
]


class WhispyxError(Exception):
    """Base of everything whispyx raises on its own account."""

    def __init__(
        self, message: str = "", *, code: int | None = None, where: str | None = None, log: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.where = where
        self.log = log

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        return f"{message} (engine: {self.log})" if self.log else message


class ModelError(WhispyxError):
    """A model could not be found, fetched or read."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """No file and no source has the model that was asked for."""


class ModelFormatError(ModelError, ValueError):
    """The file is not a Whisper model, or it is damaged."""


class AudioError(WhispyxError, ValueError):
    """The audio cannot be read, or its samples are not usable."""


class ParamsError(WhispyxError, ValueError):
    """A parameter is out of range, or two of them contradict each other."""


class LanguageError(WhispyxError, ValueError):
    """A language is unknown, or the model does not speak it."""


class StateError(WhispyxError, RuntimeError):
    """An object was used after it was closed, or by two jobs at once."""


class BackendError(WhispyxError, RuntimeError):
    """A compute backend could not be used."""


class BackendNotFoundError(BackendError, LookupError):
    """No plugin or device has the name that was asked for."""


class BackendLoadError(BackendError, OSError):
    """The plugin's file could not be opened as a library, or refused to start."""


class BackendAbiError(BackendError):
    """The plugin was made for another ggml."""


class BackendUnsupportedError(BackendError):
    """The plugin is sound but this machine cannot run it (its score is 0, or it has no device)."""


class DeviceError(BackendError):
    """A device stopped answering or refused a request."""


class ComputeError(WhispyxError, RuntimeError):
    """A graph could not be computed."""


class ComputeMemoryError(ComputeError, MemoryError):
    """A buffer did not fit into the memory of its device."""


class Aborted(WhispyxError):
    """The job was stopped from outside. `partial` holds what was recognised so far."""

    def __init__(self, message: str = "aborted", *, partial: Any = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.partial = partial


# The status codes of whisper_full (fact: whisper.h 1.8.5), and what the friendly API raises for each.
CODES: Final[dict[tuple[str, int], tuple[type[WhispyxError], str]]] = {
    ("whisper_full", -2): (ComputeError, "the mel spectrogram could not be computed"),
    ("whisper_full", -3): (ComputeError, "the language could not be detected"),
    ("whisper_full", -4): (ParamsError, "more decoders than the engine runs side by side were asked for"),
    ("whisper_full", -5): (ParamsError, "audio_ctx is larger than the model's audio context"),
    ("whisper_full", -6): (ComputeError, "the encoder failed"),
    ("whisper_full", -7): (ComputeMemoryError, "the self-attention cache could not be made for more decoders"),
    ("whisper_full", -8): (ComputeError, "the decoder failed on the prompt"),
    ("whisper_full", -9): (ComputeError, "the decoder failed on a generated token"),
    ("whisper_encode", -1): (ComputeError, "the encoder failed"),
    ("whisper_decode", 1): (ComputeError, "the decoder failed"),
}


def error_for(where: str, code: int, detail: str = "", log: str | None = None) -> WhispyxError:
    """Return the exception that stands for status `code` of C function `where`."""
    kind, message = CODES.get((where, code), (ComputeError, f"{where} returned {code}"))
    return kind(f"{message}: {detail}" if detail else message, code=code, where=where, log=log)
