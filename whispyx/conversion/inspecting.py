"""What a model of any form is, told from its headers: nothing is loaded, and no backend is needed."""

from __future__ import annotations

import hashlib
import math
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from whispyx._core.align.heads import preset_for
from whispyx._core.kernels import AUTO
from whispyx._core.weightfile import WeightFile
from whispyx.errors import ModelError
from whispyx.languages import CODES
from whispyx.models import resolve
from whispyx.models.cache import sha256_of
from whispyx.models.formats.manifest import GGML_TYPES, Manifest, Settings
from whispyx.models.formats.opening import open_model

from .memory import MemoryNeed, memory_needs

__all__ = ["FileDescription", "ModelDescription", "TypeCount", "inspect_model"]

Progress = Callable[[int, "int | None", str], None]

_SIZES: Final = tuple(size.name for size in fields(Settings))
_SPECIAL: Final = ("eot", "sot", "translate", "transcribe", "solm", "prev", "nosp", "not_", "beg")
_TYPE_NAMES: Final = {number: name for name, number in GGML_TYPES.items()}
# What a folder of a model has beside the weights.
_BESIDE: Final = (
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json", "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "vocabulary.json", "vocabulary.txt", "model.safetensors.index.json", "pytorch_model.bin.index.json",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileDescription:
    """A file of a model; `path` is None for what is in memory, `sha256` where nobody asked for it."""

    path: str | None
    n_bytes: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class TypeCount:
    """How many tensors a file holds in one type, and how many numbers and bytes those are."""

    type: str
    n_tensors: int
    n_numbers: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class ModelDescription(Settings):
    """What a model is.

    Attributes
    ----------
    n_vocab ... n_mels : int
        The sizes in its header, under their usual names.
    name : str
        Name or path as it was asked for.
    path : str or None
        The file or folder; None: it came as bytes.
    format : str
        "ggml", "gguf", "huggingface", "openai" or "ctranslate2".
    files : tuple of FileDescription
        The weights first, then what a folder has beside them.
    type : str
        Size class: "tiny", "base", "small", "medium", "large".
    ftype : str
        Type of most matrices once they are loaded with compute="exact".
    multilingual, languages
        Whether it knows other languages than English; the codes of all that it knows.
    n_tokens : int
        Tokens whose texts the file has; the others follow from the rules of Whisper.
    special : dict of str to int
        Ids of the special tokens.
    types : tuple of TypeCount
        The types of its tensors as they are stored, most bytes first.
    memory : dict of str to MemoryNeed
        Estimates for each precision; `auto` is a key of it.
    auto : str
        The precision that compute="auto" is where there are kernels; elsewhere it is "exact".
    alignment_heads : tuple of (int, int) or None
        Decoder layer and head, counted from 0, that times of words come from, where the file names them.
    alignment_preset : str
        The preset that is used where the file names none.
    suppress_tokens, begin_suppress_tokens : tuple of int or None
        Tokens that the file says are never to be written, or not at the start.
    metadata : dict of str to str
        Name, licence, author, base model and so on, as far as the file tells.
    """

    name: str
    path: str | None
    format: str
    files: tuple[FileDescription, ...]
    type: str
    ftype: str
    multilingual: bool
    languages: tuple[str, ...]
    n_tokens: int
    special: dict[str, int]
    types: tuple[TypeCount, ...]
    memory: dict[str, MemoryNeed]
    auto: str
    alignment_heads: tuple[tuple[int, int], ...] | None
    alignment_preset: str
    suppress_tokens: tuple[int, ...] | None = None
    begin_suppress_tokens: tuple[int, ...] | None = None
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def n_tensors(self) -> int:
        """How many tensors there are."""
        return sum(count.n_tensors for count in self.types)

    @property
    def n_parameters(self) -> int:
        """How many numbers the tensors hold, tables of positions included."""
        return sum(count.n_numbers for count in self.types)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors in the file."""
        return sum(count.n_bytes for count in self.types)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and properties as plain values for JSON."""
        memory = {
            name: {part: getattr(need, part) for part in ("weights", "caches", "working", "state", "total")}
            for name, need in self.memory.items()
        }
        own = [name for name in self.__dataclass_fields__ if name not in _SIZES]
        values = {name: _plain(getattr(self, name)) for name in (*own, *_SIZES)}
        totals = {name: getattr(self, name) for name in ("n_tensors", "n_parameters", "weight_bytes")}
        return {**values, **totals, "memory": memory}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, (FileDescription, TypeCount)):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return value


def inspect_model(source: Any, *, hash: bool = False, progress: Progress | None = None) -> ModelDescription:
    """Tell what a model is, without loading it.

    Parameters
    ----------
    source : str, os.PathLike, bytes-like or binary file object
        What `Model` takes: a name (fetched if it is not here yet), a file or folder in any format, or its content.
    hash : bool
        Whether to compute the SHA-256 of each file, which reads all of them.
    progress : callable, optional
        Called with (bytes done, bytes in all or None, a word for the work) while files are fetched and hashed.

    Returns
    -------
    ModelDescription

    Raises
    ------
    ModelNotFoundError, ModelFormatError, ModelError
        As for loading: headers, names, shapes and sizes are checked in the same way. `ModelError` also where a hash is
        asked for of what can be read only once.
    """
    named = isinstance(source, (str, os.PathLike))
    path = str(resolve(source, progress=progress)) if named else None
    if hash and path is not None and stat.S_ISFIFO(os.stat(path).st_mode):
        raise ModelError(f"{path} can be read only once: copy it into a file to have its hash")
    opened = open_model(source if path is None else path)
    content = opened if isinstance(opened, (bytes, bytearray, memoryview)) else None
    with WeightFile(opened) as weights:
        files = tuple(_files(path, content, weights.manifest))
        found = _describe(os.fspath(source) if named else f"<{type(source).__name__}>", path, files, weights)
        if hash:
            found = replace(found, files=tuple(_hashed(one, content, weights.manifest, progress) for one in files))
    return found


def _describe(name: str, path: str | None, files: tuple[FileDescription, ...], weights: WeightFile) -> ModelDescription:
    hp, vocab, manifest = weights.hparams, weights.vocab, weights.manifest
    multilingual = bool(vocab.is_multilingual)
    return ModelDescription(
        name=name,
        path=path,
        format="ggml" if manifest is None else manifest.format,
        files=files,
        type=hp.model_type,
        ftype=hp.ftype_name,
        multilingual=multilingual,
        languages=tuple(CODES[: vocab.n_languages]) if multilingual else ("en",),
        **{size: getattr(hp, size) for size in _SIZES},
        n_tokens=vocab.n_stored,
        special={token.rstrip("_"): getattr(vocab, token) for token in _SPECIAL},
        types=_types(weights),
        memory=memory_needs(weights),
        auto=AUTO,
        alignment_heads=None if manifest is None else manifest.alignment_heads,
        alignment_preset=preset_for(hp, name)[0],
        suppress_tokens=None if manifest is None else manifest.suppress_tokens,
        begin_suppress_tokens=None if manifest is None else manifest.begin_suppress_tokens,
        metadata={} if manifest is None else dict(manifest.metadata),
    )


def _types(weights: WeightFile) -> tuple[TypeCount, ...]:
    """Count what is stored: a manifest tells the types of the file, a file of whisper.cpp is loaded as it is."""
    tensors, numbers, sizes = Counter[int](), Counter[int](), Counter[int]()
    for name in weights.names():
        kind = weights.type_of(name) if weights.manifest is None else weights.manifest.tensors[name].type
        tensors[kind] += 1
        numbers[kind] += math.prod(weights.shape_of(name))
        sizes[kind] += weights.bytes_of(name)
    return tuple(
        TypeCount(_TYPE_NAMES.get(kind, f"type {kind}"), tensors[kind], numbers[kind], n_bytes)
        for kind, n_bytes in sizes.most_common()
    )


def _files(path: str | None, content: Any, manifest: Manifest | None) -> Iterator[FileDescription]:
    if manifest is None:
        if path is None:
            yield FileDescription(None, memoryview(content).nbytes)
        elif os.path.isfile(path):
            yield FileDescription(path, os.path.getsize(path))
        return
    for blob in manifest.blobs:
        yield FileDescription(blob.path, blob.size)
    if manifest.format in ("huggingface", "ctranslate2") and manifest.blobs[0].path is not None:
        folder = Path(manifest.blobs[0].path).parent
        for name in _BESIDE:
            if (folder / name).is_file():
                yield FileDescription(str(folder / name), (folder / name).stat().st_size)


def _hashed(
    file: FileDescription, content: Any, manifest: Manifest | None, progress: Progress | None
) -> FileDescription:
    if file.path is not None:
        try:
            return replace(file, sha256=sha256_of(Path(file.path), progress))
        except OSError as error:
            raise ModelError(f"reading {file.path} failed: {error.strerror}") from error
    data: Any = content if manifest is None else manifest.blobs[0].data
    return replace(file, sha256=hashlib.sha256(data).hexdigest())
