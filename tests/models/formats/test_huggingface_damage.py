"""Any damage to a folder's files ends in a model that can be read or a typed error, soon and in little memory."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models.ct2_maker import Ct2Model, random_model
from whispyx.errors import ModelError
from whispyx.models.formats import ctranslate2, huggingface
from whispyx.models.formats.manifest import Manifest

from .damage import damaged
from .folder_maker import N_VOCAB, byte_letters, files, random_tensors, safetensors_bytes, special_tokens, write

MIB = 1 << 20
fuzzed = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

HUGGINGFACE: dict[str, Any] = files() | {
    "generation_config.json": {
        "alignment_heads": [[0, 1]],
        "suppress_tokens": [1, 2],
        "begin_suppress_tokens": [3],
        "eos_token_id": 256,
        "no_timestamps_token_id": 266,
        "lang_to_id": {"<|en|>": 258},
        "task_to_id": {"transcribe": 262},
    },
    "preprocessor_config.json": {"feature_size": 80, "sampling_rate": 16000, "n_fft": 400, "mel_filters": None},
    "tokenizer_config.json": {"added_tokens_decoder": {"256": {"content": "<|endoftext|>"}}},
    "vocab.json": {letter: byte for byte, letter in enumerate(byte_letters())},
    "added_tokens.json": {text: 256 + i for i, text in enumerate(special_tokens())},
}
DOCUMENTS = [name for name in HUGGINGFACE if name.endswith(".json")]
RAW = {
    name: content if isinstance(content, bytes) else json.dumps(content).encode()
    for name, content in HUGGINGFACE.items()
}


def whole(manifest: Manifest) -> None:
    """All that a manifest promises about its files holds."""
    with manifest:
        for tensor in manifest.tensors.values():
            size = manifest.blobs[tensor.blob].size
            assert 0 < tensor.offset < tensor.offset + tensor.n_bytes <= size
            if tensor.factors is not None:
                assert 0 < tensor.factors.offset < size
        assert all(isinstance(token, bytes) for token in manifest.vocabulary.tokens)
        assert len(manifest.vocabulary.tokens) <= manifest.settings.n_vocab
        for number in (manifest.vocabulary.special or {}).values():
            assert 0 <= number < manifest.settings.n_vocab
        for text in manifest.metadata.values():
            text.encode("utf-8")


def read_or_refuse(read: Callable[[Path], Manifest], folder: Path) -> None:
    try:
        manifest = read(folder)
    except ModelError as error:
        message = str(error)
        message.encode("utf-8")
        assert str(folder) in message
        assert len(message) < 2000 + len(str(folder))
        return
    whole(manifest)


@fuzzed
@given(st.data())
def test_damaged_documents(tmp_path: Path, data: st.DataObject) -> None:
    contents: dict[str, Any] = dict(RAW)
    if data.draw(st.booleans(), "without tokenizer.json"):
        del contents["tokenizer.json"]
    name = data.draw(st.sampled_from([name for name in DOCUMENTS if name in contents]))
    contents[name] = data.draw(damaged(HUGGINGFACE[name]))
    folder = tmp_path / "hf"
    for old in folder.iterdir() if folder.is_dir() else ():
        old.unlink()
    read_or_refuse(huggingface.read_folder, write(folder, contents))


@fuzzed
@given(st.data())
def test_damaged_bytes_of_documents(tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in DOCUMENTS if name != "tokenizer.json"]))
    content = bytearray(RAW[name])
    place = data.draw(st.integers(0, len(content) - 1))
    content[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    cut = data.draw(st.sampled_from([len(content), place]))
    folder = write(tmp_path / "hf", RAW | {name: bytes(content[:cut])})
    read_or_refuse(huggingface.read_folder, folder)


TENSORS = random_tensors()
HEADER = json.loads(safetensors_bytes(TENSORS)[8:].split(b"}}")[0] + b"}}")
VALUES = b"".join(array.tobytes() for _, array in TENSORS.values())


@fuzzed
@given(damaged(HEADER), st.sampled_from([0, 0, 0, -1, 1]))
def test_damaged_headers_of_tensors(tmp_path: Path, header: Any, longer: int) -> None:
    raw = json.dumps(header).encode()
    content = struct.pack("<Q", max(len(raw) + longer, 0)) + raw + VALUES
    read_or_refuse(huggingface.read_folder, write(tmp_path / "hf", RAW | {"model.safetensors": content}))


@fuzzed
@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["---", "license: mit", "- en", "language:", ": :", "\r", "a: [", "\0"])).map("\n".join)
)
def test_any_card(tmp_path: Path, card: str) -> None:
    raw = card.encode("utf-8", "surrogatepass")
    whole(huggingface.read_folder(write(tmp_path / "hf", RAW | {"README.md": b"---\n" + raw + b"\n---\n"})))


CT2_TOKENS: dict[str, Any] = {"vocabulary.json": json.dumps([*byte_letters(), *special_tokens()]).encode()}
CT2 = random_model(n_vocab=N_VOCAB)
CT2.arrays |= {
    "decoder/layer_0/ffn/linear_0/weight": np.ones((32, 8), np.int8),
    "decoder/layer_0/ffn/linear_0/weight_scale": np.ones(32, np.float32),
}


@fuzzed
@given(st.data())
def test_damaged_variables(tmp_path: Path, data: st.DataObject) -> None:
    model = Ct2Model(dict(CT2.arrays), aliases=dict(CT2.aliases))
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(model.arrays)))
        array = model.arrays[name]
        action = data.draw(st.sampled_from(["drop", "reshape", "type", "rename", "alias", "value"]))
        if action == "drop":
            del model.arrays[name]
        elif action == "reshape":
            shape = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 8, 24, 32]), max_size=5))
            model.arrays[name] = np.zeros(shape, array.dtype)
        elif action == "type":
            model.arrays[name] = array.astype(data.draw(st.sampled_from(["float32", "int8", "int16", "int32"])))
        elif action == "rename":
            model.arrays[data.draw(st.text(st.characters(codec="utf-8"), max_size=4))] = model.arrays.pop(name)
        elif action == "alias":
            model.aliases[name + "_scale"] = data.draw(st.sampled_from(sorted(model.arrays)))
        elif not array.ndim:
            model.arrays[name] = np.array(data.draw(st.integers(-128, 127)), array.dtype)
    read_or_refuse(ctranslate2.read_folder, write(tmp_path / "ct2", CT2_TOKENS | {"model.bin": model.encoded()}))


CT2_BYTES = CT2.encoded()


@fuzzed
@given(st.data())
def test_damaged_bytes_of_variables(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(CT2_BYTES)
    names = [match for match in CT2.arrays if match]
    for _ in range(data.draw(st.integers(1, 3))):
        # Around a name, where sizes and types are, or anywhere.
        at = CT2_BYTES.find(data.draw(st.sampled_from(names)).encode() + b"\0")
        place = (
            max(0, at + data.draw(st.integers(-4, 80)))
            if data.draw(st.booleans())
            else data.draw(st.integers(0, len(content) - 8))
        )
        noise = data.draw(st.binary(min_size=1, max_size=6) | st.sampled_from([b"\xff" * 4, bytes(4), b"\0\0\0\x80"]))
        content[place : place + len(noise)] = noise
    if not data.draw(st.integers(0, 3)):
        del content[data.draw(st.integers(0, len(content))) :]
    read_or_refuse(ctranslate2.read_folder, write(tmp_path / "ct2", CT2_TOKENS | {"model.bin": bytes(content)}))


@fuzzed
@given(damaged({"alignment_heads": [[0, 1]], "lang_ids": [1], "suppress_ids": [1, 2], "suppress_ids_begin": [3]}))
def test_damaged_rules(tmp_path: Path, config: Any) -> None:
    contents = CT2_TOKENS | {"model.bin": CT2_BYTES, "config.json": config}
    read_or_refuse(ctranslate2.read_folder, write(tmp_path / "ct2", contents))


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "preprocessor_config.json", "generation_config.json"]
)
def test_documents_made_to_cost_memory_take_little(tmp_path: Path, name: str) -> None:
    content = b'{"model_type":"whisper","a":[' + b",".join([b'{"a":0}'] * 320_000) + b"]}"
    folder = write(tmp_path, RAW | {name: content})
    tracemalloc.start()
    try:
        read_or_refuse(huggingface.read_folder, folder)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 * len(content) + 200 * MIB
