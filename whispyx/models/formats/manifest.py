"""What a model is, read from the headers of whatever files it came in: settings, vocabulary, where each tensor lies.

A reader of a format makes a `Manifest` and reads no weights; the recogniser loads them from it, converters write them
from it, `whispyx info` shows it. Names and shapes of tensors are those of whisper.cpp's files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Literal

import numpy as np
import numpy.typing as npt

from whispyx._weight_types import GGML_TYPES
from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError

__all__ = ["GGML_TYPES", "Blob", "FormatName", "Manifest", "Settings", "Tensor", "Vocabulary"]

FormatName = Literal["ggml", "gguf", "huggingface", "openai", "ctranslate2"]


class Blob:
    """Bytes of known size: a file, or memory. Reading past the end is a ModelFormatError that names what was read.

    Parameters
    ----------
    source : path or bytes-like
    name : str, optional
        How messages call it; the path if there is one.

    Raises
    ------
    ModelNotFoundError
        There is no such file.
    ModelError
        It cannot be opened.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes | bytearray | memoryview, name: str = "") -> None:
        self.path: str | None = None
        self.data: memoryview | None = None
        self._fd = -1
        if isinstance(source, (bytes, bytearray, memoryview)):
            self.data = memoryview(source).cast("B")
            self.name, self.size = name or "the model buffer", self.data.nbytes
            return
        self.path = os.fspath(source)
        self.name = name or self.path
        try:
            self._fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
            self.size = os.fstat(self._fd).st_size
        except (FileNotFoundError, ValueError) as error:
            self.close()
            raise ModelNotFoundError(f"there is no model file {self.path!r}: {error}") from None
        except OSError as error:
            self.close()
            raise ModelError(f"the model file {self.name} cannot be opened: {error.strerror}") from error

    def read(self, offset: int, n_bytes: int, what: str) -> bytes:
        """Return bytes [offset, offset + n_bytes), which are `what`."""
        if offset < 0 or n_bytes < 0 or offset + n_bytes > self.size:
            raise ModelFormatError(
                f"{self.name} ends early: {what} needs {n_bytes} bytes at offset {offset}, there are {self.size} bytes"
            )
        if self.data is not None:
            return bytes(self.data[offset : offset + n_bytes])
        parts, at = [], offset
        while at < offset + n_bytes:
            try:
                part = os.pread(self._fd, min(offset + n_bytes - at, 1 << 30), at)
            except OSError as error:
                raise ModelError(f"reading {self.name} failed: {error.strerror}") from error
            if not part:
                raise ModelFormatError(f"{self.name} became shorter while {what} was read")
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Blob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of the network, in the order in which whisper.cpp's files have them."""

    n_vocab: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    n_mels: int

    def values(self) -> tuple[int, ...]:
        """The sizes alone, of what has more fields, too."""
        return tuple(getattr(self, size.name) for size in fields(Settings))


@dataclass(frozen=True, slots=True)
class Factors:
    """What integers of a tensor are divided by: one float for all, or one per row (first axis)."""

    type: int
    blob: int
    offset: int
    n: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies. `shape` has the slowest axis first, as in PyTorch: a matrix is (n_out, n_in)."""

    name: str
    shape: tuple[int, ...]
    type: int
    """A value of GGML_TYPES."""
    blob: int
    """Index into Manifest.blobs."""
    offset: int
    n_bytes: int
    factors: Factors | None = None
    """For i8 and i16: value = integer / factor."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Texts of the tokens, and the ids of those that are no text.

    `special` holds the ids of eot, sot, translate, transcribe, solm, prev, nosp, not, beg where a file names them;
    None: they follow from the number of tokens, as in whisper.cpp. Likewise `languages`: code of each language token,
    in the order of their ids, which follow sot.

    Ids behind the 1501 timestamps that `tokens` reaches are words of the model's own; `hidden` are those of them that
    the model may write and that are no text. Ids without bytes only fill the embedding up.
    """

    tokens: tuple[bytes, ...]
    special: dict[str, int] | None = None
    languages: tuple[str, ...] | None = None
    multilingual: bool = True
    """Where `special` is there: whether the model is told the language. English-only models have language tokens too,
    and are not."""
    hidden: tuple[int, ...] = ()


@dataclass(slots=True)
class Manifest:
    """A model, but for the values of its weights."""

    format: FormatName
    blobs: list[Blob]
    settings: Settings
    vocabulary: Vocabulary
    tensors: dict[str, Tensor]
    filters: npt.NDArray[np.float32] | None = None
    """(n_mels, 201), None: the filters that Whisper was trained with."""
    alignment_heads: tuple[tuple[int, int], ...] | None = None
    """(decoder layer, head) from 0 that times of words come from, where a file names them."""
    suppress_tokens: tuple[int, ...] | None = None
    begin_suppress_tokens: tuple[int, ...] | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    """name, license, author, base_model, language, version, url, ... as far as a file tells."""

    @property
    def name(self) -> str:
        """How messages call the model."""
        return self.blobs[0].name

    def close(self) -> None:
        for blob in self.blobs:
            blob.close()

    def __enter__(self) -> Manifest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
