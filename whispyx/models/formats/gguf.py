"""GGUF files with a Whisper model: ours (docs/gguf.md), and those of others whose keys and names suffice."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Final

import numpy as np
import numpy.typing as npt

from whispyx.constants import N_FFT_BINS
from whispyx.models.convert.layout import all_tensors

from .gguf_container import ARRAY, BLOCKS, STRING, Container, Record
from .gguf_names import (
    FILTERS,
    HEAD_SIZE,
    IGNORED,
    PROJECTIONS,
    RESERVED,
    SETTINGS,
    own_key,
    own_name,
)  # fmt: skip
from .gguf_vocabulary import WORD_LISTS, read_vocabulary
from .manifest import GGML_TYPES, Blob, Manifest, Settings, Tensor
from .rules import check_settings

__all__ = ["read_gguf"]

log = logging.getLogger("whispyx.models.formats")

_WEIGHT_TYPES: Final = frozenset(GGML_TYPES.values()) - {GGML_TYPES["i8"], GGML_TYPES["i16"]}
"""Integers mean nothing without the factors that CTranslate2's files have and GGUF's have not."""

# Bounds far outside every published model; they keep the table of expected tensors small.
_BOUNDS: Final = {
    "n_vocab": 500_000, "n_audio_ctx": 16384, "n_audio_state": 16384, "n_audio_head": 256, "n_audio_layer": 128,
    "n_text_ctx": 16384, "n_text_state": 16384, "n_text_head": 256, "n_text_layer": 128, "n_mels": 1024,
}  # fmt: skip
_MAX_HEADS: Final = _BOUNDS["n_text_layer"] * _BOUNDS["n_text_head"]
_MAX_NOTES: Final = 100
_MAX_NOTE_BYTES: Final = 1 << 14
_SAMPLE_BYTES: Final = 4096

# Which tensor, and which axis of it, tells a size that no key tells.
_SIZE_OF: Final[dict[str, tuple[str, int]]] = {
    "n_vocab": ("decoder.token_embedding.weight", 0),
    "n_audio_ctx": ("encoder.positional_embedding", 0),
    "n_audio_state": ("encoder.positional_embedding", 1),
    "n_text_ctx": ("decoder.positional_embedding", 0),
    "n_text_state": ("decoder.positional_embedding", 1),
    "n_mels": ("encoder.conv1.weight", 1),
}
_RENAMED: Final = {"base_model.0.name": "base_model"}
_LAYERS_OF: Final = {"n_audio_layer": "encoder.blocks.", "n_text_layer": "decoder.blocks."}
_STATE_OF: Final = {"n_audio_head": "n_audio_state", "n_text_head": "n_text_state"}


def read_gguf(blob: Blob) -> Manifest:
    """Read the header of a GGUF file with a Whisper model.

    Parameters
    ----------
    blob : Blob
        A file of version 2 or 3, little endian.

    Returns
    -------
    Manifest
        Its only blob is `blob`. Sizes that no key tells follow from the shapes of tensors; a head has 64 channels then.
        Where no key has the vocabulary, it comes from the tokenizer's files beside the model, or is that of all
        published models of this size.

    Raises
    ------
    ModelFormatError
        The file is cut or contradicts itself, its keys say that it is no Whisper model, or a tensor is missing, extra,
        twice there, misshapen, or of a type that weights cannot have; the message names key, tensor or offset.
    ModelError
        It cannot be read.
    """
    file = Container(blob, keep=WORD_LISTS)
    keys = _keys(file)
    records = _named(file)
    settings = _settings(file, keys, records)
    tensors = _tensors(file, records, settings)
    return Manifest(
        format="gguf",
        blobs=[blob],
        settings=settings,
        vocabulary=read_vocabulary(file, keys, settings.n_vocab),
        tensors=tensors,
        filters=_filters(file, keys, settings),
        alignment_heads=_heads(file, keys, settings),
        suppress_tokens=_ids(file, keys, "suppress_tokens", settings),
        begin_suppress_tokens=_ids(file, keys, "begin_suppress_tokens", settings),
        metadata=_notes(file, keys),
    )


def _keys(file: Container) -> dict[str, str]:
    """Return Whisper's keys without the architecture -> as the file has them; refuse other architectures."""
    keys: dict[str, str] = {}
    for key in file.values:
        short = own_key(key)
        if short is not None and (short not in keys or key == f"whisper.{short}"):
            keys[short] = key
    name = file.text("general.architecture")
    if name is not None and "whisper" not in name.lower():
        raise file.error(f"general.architecture is {name[:80]!r}: a model of another kind, not Whisper")
    return keys


def _named(file: Container) -> dict[str, Record]:
    """Return the tensors of the network by whisper.cpp's names, in the file's order."""
    records: dict[str, Record] = {}
    for name, record in file.tensors.items():
        own = own_name(name)
        if own is None:
            if name in IGNORED or name in FILTERS or name in PROJECTIONS:
                continue
            raise file.error(f"tensor {name!r} at offset {record.offset} is no part of a Whisper model")
        if own in records:
            raise file.error(f"tensors {records[own].name!r} and {name!r} are both {own!r}")
        records[own] = record
    return records


def _settings(file: Container, keys: dict[str, str], records: dict[str, Record]) -> Settings:
    found: dict[str, int] = {}
    for field in fields(Settings):
        told = {keys[short]: file.integer(keys[short]) for short in SETTINGS[field.name] if short in keys}
        if len(set(told.values())) > 1:
            raise file.error(f"keys contradict each other: {', '.join(f'{key} is {n}' for key, n in told.items())}")
        number = next(iter(told.values()), None)
        if number is None:
            number = _size(file, records, found, field.name)
        if not 1 <= number <= _BOUNDS[field.name]:
            key = next(iter(told), field.name)
            raise file.error(f"{key} is {number}; a Whisper model has 1 to {_BOUNDS[field.name]}")
        found[field.name] = number
    settings = Settings(**found)
    check_settings(settings, file.blob.name)
    if settings.n_audio_state != settings.n_text_state:
        raise file.error(
            f"encoder and decoder differ in width: {settings.n_audio_state} and {settings.n_text_state} channels"
        )
    return settings


def _size(file: Container, records: dict[str, Record], found: dict[str, int], name: str) -> int:
    """Derive a setting that no key tells from the tensors."""
    if name in _LAYERS_OF:
        start = _LAYERS_OF[name]
        return len({own.split(".")[2] for own in records if own.startswith(start)})
    if name in _STATE_OF:
        width = found[_STATE_OF[name]]
        if width % HEAD_SIZE:
            raise file.error(f"no key tells the number of heads (whisper.{SETTINGS[name][0]}), and {width} is unusual")
        return width // HEAD_SIZE
    own, axis = _SIZE_OF[name]
    if own not in records:
        raise file.error(f"there is neither a key whisper.{SETTINGS[name][0]} nor a tensor {own!r}: no Whisper model")
    shape = records[own].shape
    if axis >= len(shape):
        raise file.error(f"tensor {records[own].name!r} has the shape {list(shape)}, which tells no {name}")
    return shape[axis]


def _tensors(file: Container, records: dict[str, Record], settings: Settings) -> dict[str, Tensor]:
    """Check the tensors against the settings. A file without any is one for tests, as in whisper.cpp."""
    expected = {plan.name: plan.shape for plan in all_tensors(settings)}
    tensors: dict[str, Tensor] = {}
    for own, record in records.items():
        name, shape = f"tensor {record.name!r} at offset {record.offset}", expected.get(own)
        if shape is None:
            raise file.error(f"{name} is more than a model of these settings has ({own!r})")
        if _significant(record.shape) != _significant(shape):
            raise file.error(f"{name} has the shape {list(record.shape)}; the settings say {list(shape)}")
        if record.type not in _WEIGHT_TYPES:
            raise file.error(f"{name} has the type {BLOCKS[record.type][0]}, which weights of this program cannot have")
        tensors[own] = Tensor(own, shape, record.type, 0, record.offset, record.n_bytes)
    missing = [own for own in expected if own not in records]
    if records and missing:
        raise file.error(f"{len(missing)} of {len(expected)} tensors are missing, the first is {missing[0]!r}")
    for name in PROJECTIONS:
        if name in file.tensors:
            _check_projection(file, file.tensors[name], records)
    return tensors


def _significant(shape: tuple[int, ...]) -> list[int]:
    """Axes of more than one value: a bias may be stored as (n) or (n, 1)."""
    return [n for n in shape if n != 1]


def _check_projection(file: Container, record: Record, records: dict[str, Record]) -> None:
    """Refuse an output projection that is not the embedding once more: without it such a model says other words."""
    embedding = records.get("decoder.token_embedding.weight")
    if embedding is not None and (embedding.shape, embedding.type) == (record.shape, record.type):
        n = min(_SAMPLE_BYTES, record.n_bytes)
        places = (0, record.n_bytes // 2, record.n_bytes - n)
        if all(_sample(file, record, at, n) == _sample(file, embedding, at, n) for at in places):
            return
    raise file.error(
        f"tensor {record.name!r} at offset {record.offset} is an output projection of its own; Whisper's is the token "
        "embedding, and no other can be used"
    )


def _sample(file: Container, record: Record, at: int, n: int) -> bytes:
    return file.blob.read(record.offset + at, min(n, record.n_bytes - at), f"tensor {record.name!r}")


def _filters(file: Container, keys: dict[str, str], settings: Settings) -> npt.NDArray[np.float32] | None:
    shape = (settings.n_mels, N_FFT_BINS)
    record = next((file.tensors[name] for name in FILTERS if name in file.tensors), None)
    if record is not None:
        what = f"tensor {record.name!r} at offset {record.offset}"
        if record.shape != shape or BLOCKS[record.type][0] not in ("f32", "f16"):
            raise file.error(
                f"{what} holds mel filters of shape {list(record.shape)}; f32 of {list(shape)} are expected"
            )
        raw = file.blob.read(record.offset, record.n_bytes, what)
        values = np.frombuffer(raw, "<f4" if BLOCKS[record.type][0] == "f32" else "<f2")
    elif "mel_filters" in keys:
        what = f"key {keys['mel_filters']!r}"
        array = file.numbers(keys["mel_filters"], shape[0] * shape[1], whole=False)
        if array is None or len(array) != shape[0] * shape[1]:
            raise file.error(f"{what} should hold {shape[0]} x {shape[1]} numbers")
        values = array
    else:
        return None
    with np.errstate(over="ignore"):
        filters = np.ascontiguousarray(values, np.float32).reshape(shape)
    if not np.isfinite(filters).all():
        raise file.error(f"{what} holds mel filters that are not finite")
    return filters


def _heads(file: Container, keys: dict[str, str], settings: Settings) -> tuple[tuple[int, int], ...] | None:
    key = keys.get("alignment_heads")
    if key is None:
        return None
    flat = file.numbers(key, 2 * _MAX_HEADS)
    numbers = [] if flat is None else flat.tolist()
    if len(numbers) % 2:
        raise file.error(f"key {key!r} holds {len(numbers)} numbers, which are no pairs of layer and head")
    heads = tuple(dict.fromkeys(zip(numbers[::2], numbers[1::2], strict=True)))
    if not all(0 <= layer < settings.n_text_layer and 0 <= head < settings.n_text_head for layer, head in heads):
        # Distilled models come with the heads of their teachers, which have more layers.
        log.warning("%s: key %r names heads that are not in this model; they are ignored", file.blob.name, key)
        return None
    return heads or None


def _ids(file: Container, keys: dict[str, str], short: str, settings: Settings) -> tuple[int, ...] | None:
    key = keys.get(short)
    if key is None:
        return None
    array = file.numbers(key, _BOUNDS["n_vocab"])
    numbers = [] if array is None else array.tolist()
    known = tuple(dict.fromkeys(number for number in numbers if 0 <= number < settings.n_vocab))
    if any(not 0 <= number < settings.n_vocab for number in numbers):
        log.warning("%s: key %r names tokens that the model does not have; they are ignored", file.blob.name, key)
    return known


def _notes(file: Container, keys: dict[str, str]) -> dict[str, str]:
    """Return what the file tells about itself: strings of `general`, and those of ours that have no place there."""
    notes: dict[str, str] = {}
    for key, value in file.values.items():
        if len(notes) == _MAX_NOTES:
            break
        short = own_key(key)
        name = key.removeprefix("general.") if key.startswith("general.") else ""
        if short is not None and short.startswith("metadata."):
            name = short.removeprefix("metadata.")
        elif not name or name in RESERVED:
            continue
        if value.type == STRING and value.n <= _MAX_NOTE_BYTES:
            notes[_RENAMED.get(name, name)] = file.text(key) or ""
        elif name == "languages" and value.type == ARRAY:
            words = file.strings(key, 1000) or ()
            notes["language"] = ", ".join(word[:80].decode("utf-8", "replace") for word in words)
    return notes
