"""Encoders from outside: something else computes Whisper's encoder, whispyx everything behind it.

>>> model = whispyx.Model("base", encoder="openvino")  # doctest: +SKIP

An encoder is a callable that turns the log-mel spectrogram of a window, float32 (n_mels, 2 * n_ctx), into float32
(n_ctx, n_audio_state). It may be called by several threads at once, one per running job. `OpenVinoEncoder` and
`CoreMlEncoder` are more than that: they have the methods of `SessionEncoder`, so that each job has a session of its own
that keeps to the job's threads and can be stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from whispyx.errors import ParamsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .coreml import CoreMlEncoder
    from .openvino import OpenVinoEncoder

    Floats: TypeAlias = NDArray[np.float32]
    EncoderLike: TypeAlias = Callable[[Floats], Floats] | "SessionEncoder" | str | os.PathLike[str]

__all__ = ["CoreMlEncoder", "OpenVinoEncoder", "Session", "SessionEncoder", "check", "chosen", "plan", "resolve"]

SUFFIXES: Final = {".xml": "openvino", ".mlmodelc": "coreml", ".mlpackage": "coreml"}
VARIABLE: Final = "WHISPYX_ENCODER"
KINDS: Final = {"openvino": "OpenVinoEncoder", "coreml": "CoreMlEncoder"}
"""By the name that a user writes, which is also the module's: the class. Most programs need neither."""


def __getattr__(name: str) -> Any:
    for module, kind in KINDS.items():
        if name == kind:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class Session(Protocol):
    """An encoder as one job uses it."""

    def run(self, mel: Floats, n_threads: int, stop: Callable[[], bool]) -> Floats | None:
        """Return the output for a window, float32 (n_ctx, n_audio_state); None when `stop()` became true before."""

    def close(self) -> None:
        """Let go of what the session holds."""


@runtime_checkable
class SessionEncoder(Protocol):
    """An encoder that opens a session for each job. `name`, if it has one, is what it is called in messages.

    With `whispyx_made_from`, the fingerprint of a model (`whispyx.encoders.openvino_ir.fingerprint`), it is refused by
    models with other weights.
    """

    def whispyx_check(self, n_mels: int, n_audio_ctx: int, n_audio_state: int) -> None:
        """Raise ParamsError for a model of another shape."""

    def whispyx_session(self, n_mels: int, n_audio_ctx: int, n_audio_state: int) -> Session:
        """Open a session."""


def chosen(encoder: EncoderLike | None) -> EncoderLike | None:
    """Return what was asked for: by the argument, else by ``WHISPYX_ENCODER``. None: the model's own encoder."""
    if encoder is None:
        encoder = os.environ.get(VARIABLE, "").strip() or None
    return None if isinstance(encoder, str) and encoder.strip().lower() == "model" else encoder


def resolve(encoder: EncoderLike, model: str | bytes | bytearray | memoryview) -> Any:
    """Return the encoder that is meant.

    Parameters
    ----------
    encoder
        "openvino" or "coreml", with a device behind a colon if it is not to be the default one ("openvino:GPU"): the
        encoder of `model`. A path: the file of an encoder. Anything else is an encoder already.
    model
        Path or content of the model file.

    Raises
    ------
    ParamsError
        A name or a kind of file that is not known.
    ModelError, BackendError
        The encoder cannot be had.
    """
    if not isinstance(encoder, (str, os.PathLike)):
        return encoder
    kind, device, path = _read(encoder)
    return kind.for_model(model, *device) if path is None else kind(path)


def check(encoder: str) -> str:
    """Return what a name or a file of an encoder means, once it is known to be usable as far as no model is needed.

    Raises what `resolve` raises.
    """
    kind, device, path = _read(encoder)
    if path is None:
        return str(kind.check_device(*device))
    return str(kind(path).name)


def _read(encoder: str | os.PathLike[str]) -> tuple[Any, list[str], str | None]:
    """Return the class, the device if one is named, and the file if it is one."""
    from .openvino_ir import path_text

    text = path_text(encoder, "an encoder")
    if isinstance(encoder, str):  # as in a selection of backends, neither case nor blanks around a name matter
        text = text.strip()
        kind, _, device = (part.strip() for part in text.partition(":"))
        if kind.lower() in KINDS:
            return _class_of(kind.lower()), [device] if device else [], None
    suffix = os.path.splitext(text.rstrip(os.sep))[1].lower()
    if suffix not in SUFFIXES:
        raise ParamsError(
            f"{text!r} names no encoder: it can be model, {', '.join(KINDS)} (with a device: openvino:GPU), or a file"
            f" ending in {', '.join(SUFFIXES)}"
        )
    return _class_of(SUFFIXES[suffix]), [], text


def _class_of(kind: str) -> Any:
    return __getattr__(KINDS[kind])


def plan(encoder: Any, n_threads: int, n_jobs: int) -> None:
    """Tell an encoder what will be asked of it, if it wants to know: jobs side by side, and the threads of each."""
    wants = getattr(encoder, "whispyx_plan", None)
    if wants is not None:
        if not callable(wants):
            raise ParamsError(f"the encoder {encoder!r} has a whispyx_plan that is no method but {wants!r}")
        wants(n_threads, n_jobs)
