"""Hugging Face folders with pytorch_model.bin, and folders without a tokenizer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whispyx.errors import ModelFormatError
from whispyx.models.formats.huggingface import read_folder

from .folder_maker import (
    N_VOCAB,
    Stored,
    as_float,
    config,
    conv_bias_apart,
    files,
    names_of,
    random_tensors,
    stored,
    tokenizer,
    values,
    write,
)
from .torch_maker import Bag, Item, Ordered, pickle_of, zip_of


def torch_file(content: Any, bag: Bag) -> bytes:
    records = [Item(f"archive/data/{key}", data) for key, data in bag.storages.items()]
    return zip_of([Item("archive/data.pkl", pickle_of(content)), *records, Item("archive/version", b"3\n")])


def torch_folder(folder: Path, content: Any, bag: Bag) -> Path:
    contents = {"config.json": config(), "tokenizer.json": tokenizer(), "pytorch_model.bin": torch_file(content, bag)}
    return write(folder, contents)


@pytest.mark.parametrize("dtype", ["F16", "F32", "BF16"])
def test_every_value_of_a_pytorch_file_is_reached(tmp_path: Path, dtype: str) -> None:
    tensors, bag = random_tensors(dtype), Bag()
    state: dict[str, Any] = Ordered({name: bag.add(array) for name, (_, array) in tensors.items()})
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]  # tied: the same storage
    with read_folder(torch_folder(tmp_path, state, bag)) as manifest:
        assert manifest.format == "huggingface"
        for ours, theirs in names_of(2, 1).items():
            expected = conv_bias_apart(ours, as_float(tensors[f"model.{theirs}"]))
            assert np.array_equal(values(manifest, ours), expected), ours


def test_safetensors_come_before_a_pytorch_file(tmp_path: Path) -> None:
    with read_folder(write(tmp_path, files() | {"pytorch_model.bin": b"x"})) as manifest:
        assert manifest.name.endswith("model.safetensors")


def refused(folder: Path, content: Any, bag: Bag, reason: str) -> None:
    with pytest.raises(ModelFormatError, match=reason):
        read_folder(torch_folder(folder, content, bag))


def test_wrong_pytorch_files_are_refused(tmp_path: Path) -> None:
    def state(bag: Bag, tensors: dict[str, Stored]) -> dict[str, Any]:
        return Ordered({name: bag.add(array) for name, (_, array) in tensors.items()})

    bag = Bag()
    refused(tmp_path, [bag.add(np.zeros(3, np.float16))], bag, "should hold a dict of tensors, not a list")
    bag = Bag()
    refused(tmp_path, {"epoch": 3}, bag, "should hold a dict of tensors; 'epoch' is 3")
    bag, name = Bag(), "model.decoder.layer_norm.bias"
    refused(
        tmp_path, state(bag, random_tensors() | {name: stored(np.zeros(8), "F64")}), bag, f"'{name}'.*DoubleStorage"
    )
    bag = Bag()
    refused(
        tmp_path, state(bag, random_tensors() | {name: stored(np.zeros(9), "F16")}), bag, rf"'{name}' has the shape"
    )
    bag = Bag()
    refused(tmp_path, state(bag, random_tensors() | {"x": stored(np.zeros(9), "F16")}), bag, "'x' belongs to no")
    write(tmp_path, {"pytorch_model.bin": b"<html>"})
    with pytest.raises(ModelFormatError, match=r"not a file of torch\.save"):
        read_folder(tmp_path)


def test_layers_that_share_values_are_refused(tmp_path: Path) -> None:
    bag = Bag()
    state: dict[str, Any] = Ordered({name: bag.add(array) for name, (_, array) in random_tensors().items()})
    state["model.encoder.layers.1.fc1.weight"] = state["model.encoder.layers.0.fc1.weight"]
    refused(
        tmp_path, state, bag, r"'encoder\.blocks\.0\.mlp\.0\.weight' and 'encoder\.blocks\.1\.mlp\.0\.weight' share"
    )


@pytest.mark.parametrize(("n_vocab", "n_text"), [(51864, 50256), (51865, 50257), (51866, 50257)])
def test_without_a_tokenizer_the_published_tokens_are_taken(
    tmp_path: Path, n_vocab: int, n_text: int, caplog: pytest.LogCaptureFixture
) -> None:
    contents = files(random_tensors(n_vocab=n_vocab)) | {"config.json": config(n_vocab)}
    del contents["tokenizer.json"]
    with caplog.at_level(logging.WARNING):
        with read_folder(write(tmp_path, contents)) as manifest:
            assert manifest.vocabulary.special is manifest.vocabulary.languages is None
            assert len(manifest.vocabulary.tokens) == n_text
            # As every published vocabulary has it: " the".
            assert manifest.vocabulary.tokens[262 if n_vocab == 51864 else 264] == b" the"
    assert f"no vocabulary is there; the one of the published models of {n_vocab} tokens is taken" in caplog.text
    assert n_vocab != N_VOCAB
