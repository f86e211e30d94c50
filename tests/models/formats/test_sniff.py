"""A model's format is told by what it holds; for anything else it is said what it is, and what to do."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError
from whispyx.models.formats.sniff import recognise

from .gguf_maker import tiny

LEGACY_TORCH = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
SAFETENSORS = struct.pack("<Q", 2) + b"{}" + bytes(64)


def a_zip(*names: str, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name in names:
            file.writestr(name, b"content of " + name.encode())
    return out.getvalue()


def a_tar(name: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as file:
        file.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    return out.getvalue()


def ct2(spec: str = "WhisperSpec", version: int = 6) -> bytes:
    return struct.pack("<IH", version, len(spec) + 1) + spec.encode() + b"\0" + struct.pack("<II", 3, 0) + bytes(100)


def saved(save: object) -> bytes:
    out = io.BytesIO()
    np.savez(out, a=np.zeros(3)) if save == "npz" else np.save(out, np.zeros(3))
    return out.getvalue()


GOOD: dict[str, tuple[bytes, str]] = {
    "ggml": (b"lmgg" + struct.pack("<12i", 51864, *[1] * 11), "ggml"),
    "ggml, the magic number alone": (b"lmgg", "ggml"),
    "gguf": (tiny().encoded(), "gguf"),
    "a checkpoint": (a_zip("archive/data.pkl", "archive/version", "archive/data/0"), "openai"),
    "a checkpoint with a name": (a_zip("tiny.en/byteorder", "tiny.en/data/0", "tiny.en/data.pkl"), "openai"),
    "an old checkpoint": (LEGACY_TORCH + b"\x80\x02M\xe9\x03.", "openai"),
    "a very old checkpoint": (a_tar("storages"), "openai"),
}


@pytest.mark.parametrize("case", GOOD)
def test_models_are_recognised_in_memory_and_on_disk(tmp_path: Path, case: str) -> None:
    data, kind = GOOD[case]
    path = tmp_path / "some file.bin"
    path.write_bytes(data)
    assert recognise(data) == recognise(bytearray(data)) == recognise(path) == recognise(str(path)) == kind


REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is empty; fetch"),
    "one byte": (b"l", "cut off after 1 bytes"),
    "three bytes": (b"GGU", "cut off after 3 bytes"),
    "a few bytes": (b"\x00\x01\x02\xff", "only 4 bytes long"),
    "zeros": (bytes(100_000), r"nothing but zeros \(100000 bytes\)"),
    "a web page": (b"<!DOCTYPE html><html><title>404 Not Found</title>", "a web page .*404 Not Found"),
    "a web page in capitals": (b"\n  <HTML><HEAD>", "a web page"),
    "a web page with a mark": (b"\xef\xbb\xbf<html>", "a web page"),
    "a web page in UTF-16": ("<html>café".encode("utf-16"), "a web page"),
    "XML": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "XML .*AccessDenied"),
    "OpenVINO's XML": (b'<?xml version="1.0"?>\n<net name="Model0" version="11">', "OpenVINO.*as the encoder"),
    "JSON": (b'{"error": "Repository not found"}', "JSON .*Repository not found.*folder"),
    "text in brackets": (b"[section]\nname = 1\n", "plain text"),
    "text": ("Ünauthorized".encode() * 20, "plain text .*Ünauthorized"),
    "text that is cut inside a character": (("é" * 3000).encode()[:4097], "plain text"),
    "a pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 77704715\n",
        r"Git LFS pointer to a file of 77704715 bytes; fetch the file itself \(git lfs pull\)",
    ),
    "a zip archive": (a_zip("model/config.json", "model/readme.txt"), "no checkpoint.*'model/config.json'.*unpack"),
    "an empty zip archive": (a_zip(), "zip"),
    "a cut zip archive": (a_zip("archive/data.pkl", "archive/data/0")[:-10], "zip"),
    "a program of TorchScript": (a_zip("m/data.pkl", "m/code/a.py", "m/constants.pkl"), "TorchScript"),
    "arrays of NumPy": (saved("npz"), r"NumPy arrays \(.npz\)"),
    "an array of NumPy": (saved("npy"), "a NumPy array"),
    "safetensors": (SAFETENSORS, "safetensors file without the rest.*fetch the whole folder"),
    "ggml, the other way round": (b"ggml" + bytes(100), "big-endian"),
    "a model of llama.cpp": (b"tjgg" + bytes(100), "llama.cpp"),
    "a model for voice activity": (
        b"lmgg" + struct.pack("<i", 10) + b"silero-16k" + bytes(90),
        "silero-16k.*vad_model",
    ),
    "CTranslate2's bytes": (ct2(), "without its vocabulary.*name the folder"),
    "another model of CTranslate2": (ct2("TransformerSpec"), "another kind .TransformerSpec"),
    "ONNX": (b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:" + bytes(100), "ONNX"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    "TensorFlow Lite": (b"\x1c\0\0\0TFL3" + bytes(100), "TensorFlow Lite"),
    "gzip": (gzip.compress(b"lmgg" * 100, mtime=0), "gzip archive; unpack"),
    "a tar archive": (a_tar("model/config.json"), "tar archive; unpack"),
    "a pickle": (pickle.dumps({"a": np.zeros(3)}, protocol=4), "pickle, which could run code"),
    "a recording": (b"RIFF\x24\0\0\0WAVEfmt " + bytes(100), "sound.*model first"),
    "a compressed recording": (b"ID3\x04" + bytes(100), "MP3"),
    "a program": (b"\x7fELF\x02" + bytes(100), "program"),
    "noise": (bytes(range(128, 256)) * 10, "begins with .*as no model does"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_model_is_called_by_its_name(tmp_path: Path, case: str) -> None:
    data, message = REFUSED[case]
    with pytest.raises(ModelFormatError, match=message) as caught:
        recognise(data)
    assert "the model buffer" in str(caught.value)
    path = tmp_path / "ggml-base.bin"
    path.write_bytes(data)
    if case == "CTranslate2's bytes":
        message = "under another name"
    with pytest.raises(ModelFormatError, match=message) as caught:
        recognise(path)
    assert str(path) in str(caught.value)


def filled(folder: Path, *names: str) -> Path:
    """A folder with these files (folders, where the name ends in /), which hold what tells them apart and no more."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(ct2() if name == "model.bin" else SAFETENSORS if "safetensors" in name else b"{}")
    return folder


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("config.json", "model.safetensors", "tokenizer.json"), "huggingface"),
        (("config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"), "huggingface"),
        (("config.json", "model.safetensors", "pytorch_model.bin", "onnx/model.onnx"), "huggingface"),
        (("config.json", "model.bin", "vocabulary.json"), "ctranslate2"),
        (("model.bin",), "ctranslate2"),
    ],
)
def test_folders_are_recognised(tmp_path: Path, names: tuple[str, ...], kind: str) -> None:
    assert recognise(filled(tmp_path, *names)) == kind
    assert recognise(os.fspath(tmp_path) + "/") == kind


def test_a_file_of_weights_stands_for_its_folder(tmp_path: Path) -> None:
    filled(tmp_path / "hf", "config.json", "model.safetensors")
    filled(tmp_path / "ct2", "model.bin", "tokenizer.json")
    assert recognise(tmp_path / "hf" / "model.safetensors") == "huggingface"
    assert recognise(tmp_path / "ct2" / "model.bin") == "ctranslate2"


FOLDERS: dict[str, tuple[tuple[str, ...], str]] = {
    "an empty folder": ((), "folder without a model.*model.bin.*config.json.*only nothing at all"),
    "other files": (("notes.txt", "a.wav"), "only 'a.wav', 'notes.txt'; name"),
    "many files": (tuple(f"{number:02}.txt" for number in range(20)), "'07.txt' and 12 more"),
    "a folder of models": (
        ("ggml-base.bin", "ggml-tiny.en.bin"),
        "'ggml-base.bin', 'ggml-tiny.en.bin'.*one of the files",
    ),
    "ONNX": (("config.json", "encoder_model.onnx"), "ONNX"),
    "Core ML": (("ggml-base-encoder.mlmodelc/",), "Core ML"),
    "OpenVINO": (("openvino_encoder_model.xml", "openvino_encoder_model.bin"), "OpenVINO"),
    "MLX": (("config.json", "weights.npz"), "MLX"),
    "pickled weights": (("config.json", "pytorch_model.bin"), "pickled weights only.*safetensors"),
    "TensorFlow": (("config.json", "tf_model.h5"), "TensorFlow"),
    "Flax": (("config.json", "flax_model.msgpack"), "Flax"),
    "an adapter": (("adapter_config.json", "adapter_model.safetensors"), "adapter.*merge"),
    "no config.json": (("model.safetensors",), "config.json is missing"),
    "no weights of that name": (("config.json", "model.fp16.safetensors"), "model.safetensors is missing"),
    "the hub's cache": (("blobs/", "refs/", "snapshots/"), "one revision"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_folders_without_a_model_are_told_apart(tmp_path: Path, case: str) -> None:
    names, message = FOLDERS[case]
    with pytest.raises(ModelFormatError, match=message) as caught:
        recognise(filled(tmp_path, *names))
    assert str(caught.value).startswith(str(tmp_path))


def test_a_folder_with_another_model_bin_names_it(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"lmgg" + bytes(60))
    with pytest.raises(ModelFormatError, match="no model of CTranslate2 but one in the format ggml"):
        recognise(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ModelFormatError, match="Git LFS pointer"):
        recognise(tmp_path)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"lmgg")
    for path in (tmp_path / "nowhere.bin", tmp_path / "file" / "below", "a\0b"):
        with pytest.raises(ModelNotFoundError, match="there is no model"):
            recognise(path)


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ModelFormatError, match="neither a file nor a folder"):
            recognise(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may read everything")
def test_what_may_not_be_read_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir(mode=0)
    with pytest.raises(ModelError, match="cannot be"):
        recognise(tmp_path / "secret" / "model.bin")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_have_an_answer(data: st.DataObject) -> None:
    starts = [content[:64] for content, _ in (*GOOD.values(), *REFUSED.values())]
    raw = data.draw(st.sampled_from(starts)) + data.draw(st.binary(max_size=100))
    raw = raw[data.draw(st.integers(0, 8)) :]
    try:
        assert recognise(raw) in ("ggml", "gguf", "huggingface", "openai", "ctranslate2")
    except ModelFormatError as error:
        assert len(str(error)) < 2000


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400))
def test_a_damaged_zip_archive_has_an_answer(noise: bytes, place: int) -> None:
    raw = bytearray(a_zip("archive/data.pkl", "archive/data/0"))
    raw[place : place + len(noise)] = noise
    try:
        assert recognise(bytes(raw)) in ("ggml", "gguf", "openai")
    except ModelFormatError as error:
        assert json.dumps(str(error))
