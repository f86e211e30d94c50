"""What people have instead of a model: how such files begin, and what helps."""

from __future__ import annotations

import re
import struct
from typing import Final

__all__ = ["GENERAL", "foreign", "instead", "is_safetensors", "text_kind"]

_AGAIN: Final = "fetch the model again"
_UNPACK: Final = "unpack it, and name what was inside"
_PULL: Final = "fetch the file itself (git lfs pull)"
_SOUND: Final = "name the model first and the recording where sound is expected"
GENERAL: Final = frozenset({_AGAIN, _UNPACK, _PULL})
"""Advice that holds whatever model is wanted; all other is for those who look for Whisper."""

_SIGNATURES: Final[tuple[tuple[int, bytes, str, str], ...]] = (
    (0, b"ggml", "a ggml file of a big-endian machine", "convert the model again, or fetch a little-endian one"),
    (0, b"tjgg", "a language model of old llama.cpp (ggjt)", "name a Whisper model"),
    (0, b"fmgg", "a language model of old llama.cpp (ggmf)", "name a Whisper model"),
    (0, b"algg", "an adapter of old llama.cpp (ggla)", "name a Whisper model"),
    (0, b"FUGG", "a GGUF file whose bytes are in the other order", "fetch a little-endian one"),
    (
        0,
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file (Keras, TensorFlow)",
        "save the model as a Hugging Face folder with safetensors",
    ),
    (0, b"\x93NUMPY", "a NumPy array", "save the whole model as a Hugging Face folder with safetensors"),
    (4, b"TFL3", "a TensorFlow Lite model", "name a model in a format of whisper.cpp, OpenAI or Hugging Face"),
    (4, b"ORTM", "a model of ONNX Runtime", "name the Hugging Face folder that it was made from"),
    (0, b"\x1f\x8b", "a gzip archive", _UNPACK),
    (0, b"BZh", "a bzip2 archive", _UNPACK),
    (0, b"\xfd7zXZ\0", "an xz archive", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (0, b"Rar!", "a RAR archive", _UNPACK),
    (0, b"RIFF", "a sound or picture file (RIFF)", _SOUND),
    (0, b"ID3", "a sound file (MP3)", _SOUND),
    (0, b"\xff\xfb", "a sound file (MP3)", _SOUND),
    (0, b"fLaC", "a sound file (FLAC)", _SOUND),
    (0, b"OggS", "a sound file (Ogg)", _SOUND),
    (4, b"ftyp", "a film or sound file (MP4)", _SOUND),
    (0, b"\x1aE\xdf\xa3", "a film or sound file (Matroska)", _SOUND),
    (0, b"%PDF", "a PDF document", "name a model"),
    (0, b"\x7fELF", "a program or library", "name a model"),
    (0, b"MZ", "a program or library", "name a model"),
    (0, b"\x89PNG", "a picture", "name a model"),
    (0, b"\xff\xd8\xff", "a picture", "name a model"),
)

_LFS: Final = re.compile(rb"version https?://(?:git-lfs|hawser)[^\n]*\n(?:[^\n]*\n)*?size (\d{1,20})")
_JSON: Final = re.compile(r'\{ ?["}]|\[ ?["\[{\]\d-]')
_PICTURE_OF_TEXT: Final = 60
_LEAST: Final = 64


def foreign(head: bytes) -> tuple[str, str] | None:
    """Return what a file is by its first bytes, and what to do about it; None where they tell nothing."""
    for at, magic, what, advice in _SIGNATURES:
        if head.startswith(magic, at):
            return what, advice
    # A message of protocol buffers: ONNX begins with its version (field 1), then the name of who made it (field 2).
    if len(head) > 4 and head[0] == 0x08 and head[1] < 32 and head[2] == 0x12 and head[4 : 4 + head[3]].isascii():
        return "an ONNX model", "name the Hugging Face folder that it was made from"
    return None


def instead(head: bytes, size: int) -> tuple[str, str] | None:
    """Return what a file of `size` bytes is that begins like no model, and what to do about it, if that can be told."""
    found = text_kind(head) or foreign(head)
    if found is None and head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        return "a Python pickle, which could run code and is not loaded", "save the model with safetensors"
    if found is None and size < _LEAST:
        return f"only {size} bytes long ({head!r})", _AGAIN
    return found


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file begins with the length of a header that is a JSON object and fits into the file."""
    return len(head) >= 9 and 2 <= struct.unpack_from("<Q", head)[0] <= size - 8 and head[8:9] == b"{"


def text_kind(head: bytes) -> tuple[str, str] | None:
    """Return which text a file is, by its beginning, and what to do about it; None for other bytes."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = head[: len(head) & ~1].decode("utf-16", "replace")
    else:
        # The last character may be cut.
        text = head.decode("utf-8", "ignore").removeprefix("\ufeff")
        if len(text.encode("utf-8")) < len(head.removeprefix(b"\xef\xbb\xbf")) - 3:
            return None
    if any(not character.isprintable() and character not in "\t\n\r\f" for character in text):
        return None
    words = " ".join(text.split())
    shown = words[:_PICTURE_OF_TEXT] + ("..." if len(words) > _PICTURE_OF_TEXT else "")
    start = words[:512].lower()
    pointer = _LFS.match(head)
    if pointer or start.startswith(("version https://git-lfs", "version http://git-media", "version https://hawser")):
        size = f" of {int(pointer[1])} bytes" if pointer else ""
        return f"a Git LFS pointer to a file{size}", _PULL
    if start.startswith("<?xml") and "<net " in start:
        return "the XML part of an OpenVINO model", "give it as the encoder, with a model in another format"
    if start.startswith(("<!doctype html", "<html", "<head", "<body", "<!--")):
        return f"a web page ({shown!r}), most likely an error page instead of the download", _AGAIN
    if start.startswith("<"):
        return f"XML ({shown!r}), most likely an error message instead of the download", _AGAIN
    if _JSON.match(start):
        return f"JSON ({shown!r})", "name the model's folder, or, if this is an error message of a server, " + _AGAIN
    return f"plain text ({shown!r})", _AGAIN
