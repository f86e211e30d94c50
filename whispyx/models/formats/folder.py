"""The files of a model's folder: only those that lie in it, only regular ones, only of a size that can be meant."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final

from whispyx._signatures import foreign, text_kind
from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError

from .documents import Document, parse_json, shown
from .manifest import Blob

__all__ = ["Folder", "parse_document", "refuse_other_things"]

MAX_TEXT_BYTES: Final = 16 << 20
"""Of a file that is no weights. The largest, tokenizer.json, has 4 MB."""

_HEAD_BYTES: Final = 4096
_LEAST_TEXT: Final = 8
_DOCUMENTS: Final = ("JSON", "plain text")
"""How `text_kind` calls what may be a document with a mistake in it."""

# Models under the name of something else.
_MODELS: Final = (
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint under a wrong name"),
    (b"GGUF", "a GGUF file under a wrong name"),
    (b"lmgg", "a ggml file under a wrong name"),
)


def refuse_other_things(blob: Blob) -> None:
    """Raise ModelFormatError where a file of weights is empty, a web page, or something else that has its own name."""
    head = blob.read(0, min(blob.size, _HEAD_BYTES), "the first bytes")
    found = _other_thing(head) or (text_kind(head) if len(head) >= _LEAST_TEXT else None)
    if found is not None:
        raise ModelFormatError(f"{blob.name} is {'; '.join(found)}")


def _other_thing(head: bytes) -> tuple[str, str] | None:
    """Return what a file is that is neither weights nor a document, by its beginning, and what to do about it."""
    if not head:
        return "empty", "fetch the model again"
    for start, meaning in _MODELS:
        if head.startswith(start):
            return meaning, "name it itself, not its folder"
    return foreign(head)


def parse_document(data: bytes, path: str) -> Any:
    """Return what the JSON of a file means; errors as from `parse_json`, which say what the file is instead."""
    try:
        return parse_json(data, path)
    except ModelFormatError as error:
        head = data[:_HEAD_BYTES]
        found = _other_thing(head) or text_kind(head)
        if found is None or found[0].startswith(_DOCUMENTS):
            raise
        raise ModelFormatError(f"{error} (it is {'; '.join(found)})") from None


class Folder:
    """A folder with a model.

    Links that lead out of the folder are refused: a model is no way to have other files of a machine read. The hub's
    cache is known, where folders `snapshots/REVISION` consist of links into the `blobs` beside `snapshots`.

    Raises
    ------
    ModelNotFoundError
        There is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fsdecode(path)
        try:
            if not os.path.isdir(self.path):
                raise ModelNotFoundError(f"there is no folder {self.path!r}")
            real = Path(os.path.realpath(self.path))
        except (OSError, ValueError) as error:
            if isinstance(error, ModelNotFoundError):
                raise
            raise ModelNotFoundError(f"there is no folder {self.path!r}: {error}") from None
        self._roots = [real]
        if real.parent.name == "snapshots":
            self._roots.append(real.parent.parent / "blobs")

    def names(self) -> list[str]:
        """Return the names of what is in the folder, sorted."""
        try:
            return sorted(os.listdir(self.path))
        except OSError as error:
            raise ModelError(f"the folder {self.path!r} cannot be listed: {error.strerror}") from error

    def has(self, name: str) -> bool:
        """Whether something has this name, if only a link to what is not there."""
        return os.path.lexists(os.path.join(self.path, name))

    def file(self, name: str) -> str:
        """Return the path of a file.

        Parameters
        ----------
        name : str
            Without any folder.

        Raises
        ------
        ModelNotFoundError
            It is not there.
        ModelFormatError
            The name, or a link, leads out of the folder, or it is no regular file.
        ModelError
            It cannot be reached.
        """
        if not name or name in (".", "..") or any(mark in name for mark in "/\\\0:"):
            raise ModelFormatError(f"{self.path}: {shown(name)} is no name of a file in this folder")
        path = os.path.join(self.path, name)
        try:
            real = Path(os.path.realpath(path))
            mode = os.stat(path).st_mode
        except (FileNotFoundError, ValueError):
            raise ModelNotFoundError(f"there is no {shown(name)} in {self.path!r}") from None
        except OSError as error:
            raise ModelError(f"{shown(name)} in {self.path!r} cannot be reached: {error.strerror}") from error
        if not any(root in real.parents for root in self._roots):
            raise ModelFormatError(f"{path} is a link that leads out of the model's folder")
        if not stat.S_ISREG(mode):  # opening a pipe would wait for ever
            raise ModelFormatError(f"{path} is no regular file")
        return path

    def read(self, name: str, limit: int = MAX_TEXT_BYTES) -> bytes:
        """Return the content of a file that is no weights; errors as from `file`, and ModelFormatError if larger."""
        with Blob(self.file(name)) as blob:
            if blob.size > limit:
                raise ModelFormatError(f"{blob.name} has {blob.size} bytes; at most {limit} can be meant")
            return blob.read(0, blob.size, "the file")

    def head(self, name: str, n_bytes: int) -> bytes:
        """Return the first bytes of a file, all if it has no more; errors as from `file`."""
        with Blob(self.file(name)) as blob:
            return blob.read(0, min(blob.size, n_bytes), "the first bytes")

    def document(self, name: str) -> Document | None:
        """Return the JSON object in a file, None if there is no such file."""
        if not self.has(name):
            return None
        path = os.path.join(self.path, name)
        return Document(parse_document(self.read(name), path), path)
