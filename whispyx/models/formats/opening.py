"""From whatever a user calls a model to what the recogniser loads."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whispyx._files import read_all
from whispyx.errors import ModelError

from .manifest import Blob, Manifest

__all__ = ["describe", "open_model"]

_GGML = b"lmgg"


def open_model(source: Any) -> Any:
    """Return what `Context.load` takes for a model of any format.

    Parameters
    ----------
    source : path, bytes-like or binary file object
        A file or a folder; a file object or a pipe is read to its end.

    Returns
    -------
    path, bytes-like, binary file object or Manifest
        A file of whisper.cpp as it was given: the recogniser reads it itself. Anything else as a manifest.

    Raises
    ------
    ModelNotFoundError
        There is nothing at that path.
    ModelFormatError
        It is no Whisper model, or one that cannot be read; the message says what it is instead.
    ModelError
        It cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if _is_pipe(path):
            return _from_pipe(path)
        return path if _is_ggml_file(path) else describe(path)
    if not isinstance(source, (bytes, bytearray, memoryview)):
        if not hasattr(source, "read"):
            return source  # the recogniser says what a model can be
        source = read_all(source)
    return source if bytes(memoryview(source).cast("B")[:4]) == _GGML else describe(source)


def _is_ggml_file(path: str) -> bool:
    """Whether a path is for the recogniser: a file that begins as whisper.cpp's do."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(4) == _GGML
    except (OSError, ValueError):
        return False  # whoever looks closer says what is wrong


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


class _Named(io.BytesIO):
    """What came through a pipe, for messages that name it."""

    name: str


def _from_pipe(path: str) -> Any:
    """A pipe can be read once, so what it holds is known only when all of it is here."""
    try:
        with open(path, "rb") as pipe:
            content = read_all(pipe, path)
    except OSError as error:
        raise ModelError(f"the model pipe {path} cannot be opened: {error.strerror}") from error
    if content[:4] != _GGML:
        return describe(content, path)
    named = _Named(content)
    named.name = path
    return named


def describe(source: str | bytes | bytearray | memoryview, name: str = "") -> Manifest:
    """Read the headers of a model that is not in whisper.cpp's format. `name` is how messages call bytes."""
    from .sniff import recognise

    kind = recognise(source, name)
    manifest = _READERS[kind](source, name)
    if manifest.filters is None:
        from whispyx.models.convert.filters import mel_filters

        manifest.filters = mel_filters(manifest.settings.n_mels)
    return manifest


def _folder_of(source: Any) -> Path:
    if not isinstance(source, (str, os.PathLike)):
        raise ModelError("a model of several files is a folder, not bytes")
    path = Path(source)
    return path if path.is_dir() else path.parent


def _huggingface(source: Any, name: str) -> Manifest:
    from .huggingface import read_folder

    return read_folder(_folder_of(source))


def _ctranslate2(source: Any, name: str) -> Manifest:
    from .ctranslate2 import read_folder

    return read_folder(_folder_of(source))


def _gguf(source: Any, name: str) -> Manifest:
    from .gguf import read_gguf

    return read_gguf(Blob(source, name))


def _openai(source: Any, name: str) -> Manifest:
    from .openai import read_checkpoint

    return read_checkpoint(Blob(source, name))


_READERS: dict[str, Callable[[Any, str], Manifest]] = {
    "huggingface": _huggingface,
    "ctranslate2": _ctranslate2,
    "gguf": _gguf,
    "openai": _openai,
}
