"""Which format a model has; for anything that is no model: what it is, and what to do about it."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from whispyx._signatures import instead, is_safetensors
from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError

from .manifest import Blob, FormatName
from .zips import read_records

__all__ = ["begins_a_model", "recognise"]

_GGML: Final = b"lmgg"
_GGUF: Final = b"GGUF"
_ZIPS: Final = (b"PK\3\4", b"PK\5\6")
# torch.save before 1.6: a pickle (protocol 2) of this number, then others.
_LEGACY_TORCH: Final = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
_TAR_TORCH: Final = ("sys_info", "pickle", "storages", "tensors")
_HEAD_BYTES: Final = 4096
_MAX_SAMPLES: Final = 64
_MAX_LISTED: Final = 10_000
_FILES_SHOWN: Final = 8

_SAFETENSORS: Final = ("model.safetensors", "model.safetensors.index.json")
_CT2_SPEC: Final = "WhisperSpec"
_SINGLE_FILES: Final = (".bin", ".gguf", ".pt", ".ggml")
_LOOKED_FOR: Final = (
    "model.bin with its vocabulary (CTranslate2), config.json with model.safetensors or its parts (Hugging Face)"
)
# Files and endings that tell what else a folder holds, and what to do about it.
_FOLDERS: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (("weights.npz", "weights.safetensors"), "a model of MLX", "name the Hugging Face folder that it was made from"),
    ((".onnx",), "an ONNX model", "name the Hugging Face folder that it was made from"),
    ((".mlmodelc", ".mlpackage", ".mlmodel"), "a Core ML model", "name the model in ggml's format beside it"),
    (
        ("openvino_encoder_model.xml", ".xml"),
        "an OpenVINO model",
        "give it as the encoder, with a model in another format, or name the Hugging Face folder that it was made from",
    ),
    (
        ("pytorch_model.bin", "pytorch_model.bin.index.json"),
        "a Hugging Face model with pickled weights only",
        "save it with safetensors (save_pretrained of transformers does), or fetch the revision that has them",
    ),
    (("tf_model.h5",), "a TensorFlow model", "save it with safetensors"),
    (("flax_model.msgpack", "flax_model.msgpack.index.json"), "a Flax model", "save it with safetensors"),
    (("saved_model.pb",), "a TensorFlow model", "save it as a Hugging Face folder with safetensors"),
    (
        ("adapter_model.safetensors", "adapter_model.bin"),
        "an adapter (PEFT, LoRA), not a whole model",
        "merge it into its base model (merge_and_unload of peft), and save that",
    ),
)

Source = str | os.PathLike[str] | bytes | bytearray | memoryview


def recognise(source: Source, name: str = "") -> FormatName:
    """Tell the format of a model by what it holds, not by its name.

    Parameters
    ----------
    source : path or bytes-like
        A file, a folder, or the bytes of a file. `model.safetensors` and `model.bin` may be named for the folders that
        they lie in.
    name : str, optional
        How messages call bytes.

    Returns
    -------
    {"ggml", "gguf", "huggingface", "openai", "ctranslate2"}
        The format whose reader takes it. For "huggingface" and "ctranslate2" that reader takes the folder, which is
        `source` or the folder of that file. A file that begins as it should can be damaged all the same.

    Raises
    ------
    ModelNotFoundError
        There is no such file.
    ModelFormatError
        It is no model, or one in a format that is not read; the message says what it is, and what to do.
    ModelError
        It cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        with Blob(source, name) as blob:
            return _recognise_file(blob)
    path = os.fspath(source)
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ModelNotFoundError(f"there is no model {path!r}: {error}") from None
    except OSError as error:
        raise ModelError(f"the model {path!r} cannot be reached: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        return _recognise_folder(path)
    if not stat.S_ISREG(mode):  # opening a pipe would wait for ever
        raise ModelFormatError(f"{path} is neither a file nor a folder; copy the model into a file")
    with Blob(path) as blob:
        return _recognise_file(blob)


def begins_a_model(head: bytes) -> bool:
    """Whether a model that is one file, in another format than whisper.cpp's, can begin like this."""
    return head.startswith((_GGUF, *_ZIPS))


def _error(name: str, what: str, advice: str) -> ModelFormatError:
    return ModelFormatError(f"{name} is {what}; {advice}")


def _recognise_file(blob: Blob) -> FormatName:
    if blob.size == 0:
        raise _error(blob.name, "empty", "fetch the model again")
    head = blob.read(0, min(blob.size, _HEAD_BYTES), "the first bytes")
    if head[:4] == _GGML:
        return _ggml(blob, head)
    if head[:4] == _GGUF:
        return "gguf"
    if head[:4] in _ZIPS:
        return _zip(blob)
    if head.startswith(_LEGACY_TORCH) or (head[257:262] == b"ustar" and _is_old_torch(head)):
        return "openai"
    if is_safetensors(head, blob.size):
        return _safetensors(blob)
    spec = _ct2_spec(head)
    if spec is not None:
        return _ct2(blob, spec)
    raise _refusal(blob, head)


def _refusal(blob: Blob, head: bytes) -> ModelFormatError:
    """Return what is said of a file that no reader takes."""
    if not any(head) and _is_zero(blob):
        return _error(
            blob.name,
            f"nothing but zeros ({blob.size} bytes): a download that took its place on the disk and was never filled",
            "fetch the model again",
        )
    if blob.size < 4 and any(magic.startswith(head) for magic in (_GGML, _GGUF, *_ZIPS)):
        return _error(blob.name, f"cut off after {blob.size} bytes", "fetch the model again")
    known = instead(head, blob.size)
    if known is not None:
        return _error(blob.name, *known)
    return ModelFormatError(
        f"{blob.name} begins with {head[:16]!r}, as no model does that can be read (ggml, GGUF, OpenAI's .pt, and "
        "folders of Hugging Face and CTranslate2)"
    )


def _is_zero(blob: Blob) -> bool:
    """Whether places all over a file hold zeros alone."""
    step = max(blob.size // _MAX_SAMPLES, 1)
    return not any(
        any(blob.read(at, min(_HEAD_BYTES, blob.size - at), "a part of the file")) for at in range(0, blob.size, step)
    )


def _ggml(blob: Blob, head: bytes) -> FormatName:
    # Silero's models for voice activity share the magic number; the length of their type's name follows, and the name.
    if len(head) >= 8:
        (length,) = struct.unpack_from("<i", head, 4)
        name = head[8 : 8 + length] if 0 < length < 64 else b""
        if name.startswith(b"silero"):
            raise _error(
                blob.name,
                f"a model for voice activity ({name.decode('ascii', 'replace')}), not for speech",
                "give it as vad_model, and name a Whisper model here",
            )
    return "ggml"


def _zip(blob: Blob) -> FormatName:
    names = list(read_records(blob))
    roots = [name.removesuffix("/data.pkl") for name in names if name.endswith("/data.pkl")]
    if len(roots) == 1 and "/" not in roots[0]:
        if any(name.startswith((f"{roots[0]}/code/", f"{roots[0]}/constants.pkl")) for name in names):
            raise _error(blob.name, "a program of TorchScript, not a checkpoint", "save the model's weights instead")
        return "openai"
    if any(name.endswith(".npy") for name in names):
        raise _error(blob.name, "a file of NumPy arrays (.npz)", "save the model as a Hugging Face folder")
    listed = _listed(names, "it is empty")
    raise _error(
        blob.name, f"a zip archive that is no checkpoint of PyTorch ({listed})", "unpack it if a model is inside"
    )


def _is_old_torch(head: bytes) -> bool:
    """torch.save before 0.2 made tar files of four parts."""
    name = head[:100].partition(b"\0")[0].decode("ascii", "replace")
    return name.removeprefix("./").partition("/")[0] in _TAR_TORCH


def _safetensors(blob: Blob) -> FormatName:
    beside = None if blob.path is None else Path(blob.path).parent / "config.json"
    if beside is not None and beside.is_file():
        return "huggingface"
    where = (
        "bytes alone cannot tell" if blob.path is None else f"there is no config.json in {os.path.dirname(blob.path)!r}"
    )
    raise _error(
        blob.name,
        "a safetensors file without the rest of its Hugging Face folder, so sizes and vocabulary are missing "
        f"({where})",
        "fetch the whole folder, and name that",
    )


def _ct2_spec(head: bytes) -> str | None:
    """Return which network a model.bin of CTranslate2 holds; None where it is none."""
    if len(head) < 8:
        return None
    version, length = struct.unpack_from("<IH", head)
    name = head[6 : 6 + length]
    if not 1 <= version <= 255 or not 2 <= length <= 64 or len(name) != length or name[-1] != 0:
        return None
    return name[:-1].decode("ascii") if name[:-1].isalnum() and name.isascii() else None


def _ct2(blob: Blob, spec: str) -> FormatName:
    if spec != _CT2_SPEC:
        raise _error(blob.name, f"a CTranslate2 model of another kind ({spec})", "name a Whisper model")
    if blob.path is None:
        raise _error(
            blob.name, "the model.bin of a CTranslate2 folder, without its vocabulary", "name the folder, not its bytes"
        )
    if os.path.basename(blob.path) != "model.bin":
        raise _error(
            blob.name,
            "the model.bin of a CTranslate2 folder under another name",
            "name a folder that has it as model.bin",
        )
    return "ctranslate2"


def _recognise_folder(path: str) -> FormatName:
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(_MAX_LISTED), strict=False))
    except OSError as error:
        raise ModelError(f"the folder {path!r} cannot be listed: {error.strerror}") from error
    present = set(names)
    if path.rstrip("/").endswith((".mlmodelc", ".mlpackage")):
        raise _error(path, "a Core ML model", "name the model in ggml's format beside it")
    if "config.json" in present and any(name in present for name in _SAFETENSORS):
        return "huggingface"
    if "model.bin" in present:
        return _recognise_model_bin(os.path.join(path, "model.bin"))
    weights = [name for name in names if name.endswith(".safetensors") and not name.startswith(("weights", "adapter_"))]
    if weights:
        missing = "model.safetensors" if "config.json" in present else "config.json"
        advice = f"fetch the whole folder ({_listed(names)} is there)"
        raise _error(path, f"a part of a Hugging Face folder: {missing} is missing", advice)
    for marks, what, advice in _FOLDERS:
        if any(name.endswith(marks) for name in names):
            raise _error(path, f"the folder of {what}", advice)
    if "snapshots" in present:
        raise _error(path, "a folder of the hub's cache", "name the folder of one revision in its folder 'snapshots'")
    models = [name for name in names if name.endswith(_SINGLE_FILES)]
    if models:
        raise _error(path, f"a folder with models in files of their own ({_listed(models)})", "name one of the files")
    raise ModelFormatError(
        f"{path} is a folder without a model: it has none of {_LOOKED_FOR}, only {_listed(names, 'nothing at all')}; "
        "name the folder or the file of a model"
    )


def _recognise_model_bin(path: str) -> FormatName:
    kind = recognise(path)
    if kind != "ctranslate2":
        raise _error(path, f"no model of CTranslate2 but one in the format {kind}", "name the file, not its folder")
    return kind


def _listed(names: Sequence[str], nothing: str = "nothing") -> str:
    """Name some of the files, for a message."""
    if not names:
        return nothing
    shown = ", ".join(repr(name[:80]) for name in names[:_FILES_SHOWN])
    more = len(names) - _FILES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
