"""OpenAI's checkpoints are read as PyTorch wrote them, and every way in which one can be wrong is named."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import data
from whispyx.errors import ModelFormatError
from whispyx.models.formats.manifest import GGML_TYPES, Blob, Manifest
from whispyx.models.formats.openai import read_checkpoint, sinusoids
from whispyx.models.formats.pickles import SavedTensor
from whispyx.models.formats.torch_zip import TorchFile

from .torch_maker import (
    N_AUDIO_CTX,
    PARAMETER,
    WIDTH,
    Array,
    Bag,
    Call,
    Checkpoint,
    Item,
    Name,
    Ordered,
    deflated,
    pickle_of,
    zip_of,
)

POSITIONS = "encoder.positional_embedding"
QUERY = "decoder.blocks.0.cross_attn.query.weight"

# A file of 2,781 bytes that PyTorch 2.13 wrote, packed: torch.save({"dims": {…}, "model_state_dict": …, "rate": 0.25,
# "list": [None, True]}, path), where the state holds weight = arange(6) as f16, (2, 3); row = weight[1:]; the Parameter
# [0.5, -2]; half = [1, -3] as bf16; turned = weight.t(); mask = two truths.
_FILE = (
    "eNqlVstvG0UYHz9iO9s0jwYITSG8qQutY6/jV5vU6ZJuS1dAakAyEWi1safxqmtvvt1xIkCRKlUJgQMnDj31xP/AlQsXJCTKoeqhnDignnpFcAjz"
    "cJfdtVyLZKTVeGe/32Nnvu9br2qxOEKpFOobk+gEMpxGy9zC802DGJnNm5aqjKO1wLgV3QGUrlMO1DTbLkR2IJquJ+ltR9+yG8Y6xN6783N9hC5Y"
    "hrOBIf5NgtNH+JrbNiwLRq79c3Bw0K1P0pW23cSW7hKDYL1pNggkGg3bsnCDmHbHlT5wmtjBzRX6RILkmRqk0nVGuI3NjRaB0QaxqeeM3iWm5Uq6"
    "g9e7ptXUCe64tqNvyRJIaeHPpZEGNXRMQKSrhnXjQ7EmwVg9QkOycLweo3NjswvjWoLAxHUNaVEttgeTWkyL7MHU1y1m4gSB6Ro8w4MdexuebVGV"
    "1rHWWOt4iwOfu87iGXBGAJ8XwJMEZmtwqj5KgZuGY7QxwQ68MOAtvAgJXhQKPe+qZRvEMz/HzefgJaodJfAyN70Lr2iRXXhV6L5G4PUavLHPb978"
    "Ck7XQBxii+4CnAmQK5w9V/T43+L8Mrwt+M/2+M8x/ozgnyeQrUGOHw3pOh3cBDm8J3mGi2nRPVgQW1MQ2CKBUg3K3E7bcG9CJWjHti3PynluJQ8X"
    "hJXFnpUlZuWioKsSWK7Bpe4OKHybdbqDBktoeIc/X6mzdITLO6DyvNjCjktTDa5oEdd117kNh2YjXL1S/VWUBl+zTJfAu5/BtfT7+7ibWdWSqdPf"
    "xf4cpTnArtWBhTWDZK+wMjdsp20QvSeqKplQfQ0bOab7w+OHt9k+sGuw7iwq/afby37dsMyNTht3iKrk/6c0H8UFZqC6DY+iVCL6VANTqOoZWP+c"
    "YJvVsqpcOIzuk2GZhFiYedhd+uMkS7fEUz2Mo4uBrjafVZXzRzBAKRfRMlLQCrrMXPx96pfvx+ji2BAX5aCLnKosoEPqV+n1I9P+Vi79zsRSQ7QX"
    "g9qyqpQPvQO3qstcu6qW9llVxIdoLwe186qyeJTjX4tEmHp6+qf54fk3gS556l7BLR1Jfi0vMf17dzc+Hq4/5y98/voudkxagV8Y7OOmm81D1H+2"
    "VCoX5ZJcKVUq5cJCrigXcnI2J1fKlUK2UirKciFfLheZy7v3p9fS1Eeau4wws55Pf+ua7HMe/h8QRvsb0EwA+UkMDWp2YRJ/E5kNkNzzk/R1rjCP"
    "vxFMBXhqcdTfgMJwfwWPB+D34yjUO8JYfwUGsZ+OhLC5vtf3VVAQ+yCMlcNYf/4HsR8lQth8GOvP3YkA9jcfdsCZ+VNqLrjXSTQk2Ve1ROLsk9KI"
    "nfOQUmi+HRXzX0kxUxz/9WUvQHz1RhICI/F4Efsv/oR/Wg=="
)


def read(content: bytes) -> Manifest:
    return read_checkpoint(Blob(content, "tiny.pt"))


def values(manifest: Manifest, name: str) -> Array:
    tensor = manifest.tensors[name]
    raw = manifest.blobs[tensor.blob].read(tensor.offset, tensor.n_bytes, name)
    dtype = {GGML_TYPES["f32"]: "<f4", GGML_TYPES["f16"]: "<f2", GGML_TYPES["bf16"]: "<u2"}[tensor.type]
    return np.frombuffer(raw, dtype).reshape(tensor.shape)


def written_by_pytorch() -> bytes:
    return zlib.decompress(base64.b64decode("".join(_FILE)))


def test_what_pytorch_wrote_is_found() -> None:
    file = TorchFile.read(Blob(written_by_pytorch()))
    content: Any = file.content
    assert content["dims"] == {"n_vocab": 51864, "large": 1 << 40, "small": -5}
    assert (content["rate"], content["list"]) == (0.25, [None, True])
    state = content["model_state_dict"]
    assert list(state) == ["weight", "row", "parameter", "half", "turned", "mask"]
    assert all(isinstance(tensor, SavedTensor) for tensor in state.values())

    def found(name: str, dtype: str) -> list[Any]:
        tensor = file.tensor(name, state[name])
        raw = file.blob.read(tensor.offset, tensor.n_bytes, name)
        return np.frombuffer(raw, dtype).reshape(tensor.shape).tolist()

    assert found("weight", "<f2") == [[0, 1, 2], [3, 4, 5]]
    assert found("row", "<f2") == [[3, 4, 5]]
    assert found("parameter", "<f4") == [0.5, -2]
    assert found("half", "<u2") == [0x3F80, 0xC040]  # the upper halves of 1.0 and -3.0 as f32
    with pytest.raises(ModelFormatError, match=r"'turned': shape \(3, 2\) with strides \(1, 3\) is not contiguous"):
        found("turned", "<f2")
    with pytest.raises(ModelFormatError, match="'mask': its values are a BoolStorage"):
        found("mask", "?")


def test_our_maker_writes_the_instructions_of_pytorch() -> None:
    # Else the tests below would show that we read what we write.
    shape, row = np.arange(6, dtype=np.float16).reshape(2, 3), (1, 3)
    bag = Bag()
    storage = bag.storage(shape)
    half = np.array([0x3F80, 0xC040], np.uint16)
    state = Ordered(weight=bag.view(storage, 0, (2, 3)), row=bag.view(storage, 3, row))
    parameter = bag.add(np.array([0.5, -2], np.float32))
    state["parameter"] = Call(PARAMETER, (parameter, True, Call(Name("collections", "OrderedDict"), ())))
    state["half"] = bag.add(half)
    state["turned"] = bag.view(storage, 0, (3, 2), (1, 3))
    state["mask"] = bag.add(np.ones(2, bool))
    dims = {"n_vocab": 51864, "large": 1 << 40, "small": -5}
    ours = pickle_of({"dims": dims, "model_state_dict": state, "rate": 0.25, "list": [None, True]})
    theirs = TorchFile.read(Blob(written_by_pytorch()))
    mine = TorchFile.read(Blob(zip_of([Item("archive/data.pkl", ours)])))
    assert mine.content == theirs.content
    raw = theirs.blob.read(theirs.records["archive/data.pkl"].offset, len(ours), "the pickle")
    assert raw[: raw.index(b"weight")] == ours[: ours.index(b"weight")]


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint16"])
def test_a_checkpoint_is_read(dtype: str) -> None:
    made = Checkpoint("float32" if dtype == "uint16" else dtype)
    if dtype == "uint16":
        made.arrays = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in made.arrays.items()}
        made.bag = Bag()
        made.state = Ordered({name: made.bag.add(array) for name, array in made.arrays.items()})
    manifest = read(made.encoded())
    assert manifest.format == "openai"
    assert {name: getattr(manifest.settings, name) for name in made.dims} == made.dims
    assert set(manifest.tensors) == set(made.arrays)
    for name, array in made.arrays.items():
        shape = (WIDTH, 1) if name.endswith(("conv1.bias", "conv2.bias")) else array.shape
        assert values(manifest, name).tobytes() == array.tobytes(), name
        assert manifest.tensors[name].shape == shape, name
    assert (manifest.filters, manifest.alignment_heads, manifest.vocabulary.special) == (None, None, None)


@pytest.mark.parametrize(
    ("n_vocab", "n_mels", "n_tokens"), [(51864, 80, 50256), (51865, 80, 50257), (51866, 128, 50257)]
)
def test_the_vocabulary_follows_from_the_number_of_tokens(n_vocab: int, n_mels: int, n_tokens: int) -> None:
    tokens = read(Checkpoint(n_vocab=n_vocab, n_mels=n_mels).encoded()).vocabulary.tokens
    assert len(tokens) == n_tokens
    assert (tokens[0], tokens[220], tokens[-1] == b"") == (b"!", b" ", n_vocab > 51864)


def test_the_file_may_be_on_disk_and_have_any_root(tmp_path: Path) -> None:
    made = Checkpoint()
    path = tmp_path / "tiny.en.pt"
    path.write_bytes(zip_of(made.items("tiny.en"), wide=False, comment=b"a comment"))
    with read_checkpoint(Blob(path)) as manifest:
        assert values(manifest, QUERY).tobytes() == made.arrays[QUERY].tobytes()
        assert manifest.name == str(path)


def test_storages_may_be_shared_and_parameters_are_tensors() -> None:
    made = Checkpoint()
    key, out = (f"decoder.blocks.0.attn.{name}.weight" for name in ("key", "out"))
    both = np.concatenate([np.zeros(3, np.float16), made.arrays[out].ravel(), made.arrays[key].ravel()])
    storage, n = made.bag.storage(both), WIDTH * WIDTH
    made.state[key] = made.bag.view(storage, 3 + n, (WIDTH, WIDTH))
    hooks = Call(Name("collections", "OrderedDict"), ())
    made.state[out] = Call(PARAMETER, (made.bag.view(storage, 3, (WIDTH, WIDTH)), True, hooks))
    manifest = read(made.encoded())
    assert values(manifest, key).tobytes() == made.arrays[key].tobytes()
    assert values(manifest, out).tobytes() == made.arrays[out].tobytes()


def test_strides_of_axes_of_length_one_do_not_matter() -> None:
    bag = Bag()
    array = np.arange(3, dtype=np.float32)
    content = pickle_of({"x": bag.view(bag.storage(array), 0, (1, 3, 1), (77, 1, 0))})
    file = TorchFile.read(Blob(zip_of([Item("a/data.pkl", content), Item("a/data/0", array.tobytes())])))
    content_read: Any = file.content
    assert file.tensor("x", content_read["x"]).n_bytes == 12


def test_masks_and_other_keys_are_ignored() -> None:
    made = Checkpoint()
    made.state["decoder.mask"] = made.bag.add(np.ones((6, 6), bool))
    made.others = {"epoch": 3, "rate": 1e-5, "optimizer": {"state": {0: {"step": made.bag.add(np.ones(1))}}}}
    assert set(read(made.encoded()).tensors) == set(made.arrays)


def test_missing_positions_are_computed() -> None:
    made = Checkpoint()
    del made.state[POSITIONS]
    manifest = read(made.encoded())
    assert len(manifest.blobs) == 2
    # Written out from the formula: sin and cos of position / 10000^(i / (half - 1)); here half = 2.
    positions = np.arange(N_AUDIO_CTX)
    angles = np.stack([positions, positions / 10000], axis=1)
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    np.testing.assert_allclose(values(manifest, POSITIONS), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("model", ["tiny.en", "base"])
def test_the_table_of_positions_is_that_of_real_models(model: str) -> None:
    n_state = {"tiny.en": 384, "base": 512}[model]
    content = data.or_skip(data.model_file, model).read_bytes()
    name = POSITIONS.encode()
    at = content.index(struct.pack("<5i", 2, len(name), 0, n_state, 1500) + name) + 20 + len(name)
    table = np.frombuffer(content, "<f4", 1500 * n_state, at).reshape(1500, n_state)
    # The weights were published as f16.
    np.testing.assert_array_equal(sinusoids(1500, n_state).astype(np.float16), table.astype(np.float16))


def drop(name: str) -> Callable[[Checkpoint], object]:
    return lambda made: made.state.pop(name)


def size(name: str, value: object) -> Callable[[Checkpoint], object]:
    return lambda made: made.dims.__setitem__(name, value)


def reshaped(name: str, shape: Any, strides: Any = None, start: Any = 0) -> Callable[[Checkpoint], object]:
    def change(made: Checkpoint) -> None:
        made.state[name] = made.bag.view(made.state[name].arguments[0], start, shape, strides)

    return change


def replaced(name: str, array: Array, n: int | None = None) -> Callable[[Checkpoint], object]:
    def change(made: Checkpoint) -> None:
        made.state[name] = made.bag.view(made.bag.storage(array, n), 0, array.shape)

    return change


def tied(made: Checkpoint) -> None:
    made.state[QUERY] = made.state[QUERY.replace("query", "key")]


CASES: dict[str, tuple[Callable[[Checkpoint], object], str]] = {
    "a tensor is missing": (drop(QUERY), rf"missing \['{QUERY}'\]"),
    "a tensor is extra": (lambda made: made.state.update(head=made.state[QUERY]), r"Whisper's \['head'\]"),
    "a number among the tensors": (lambda made: made.state.update({QUERY: 5}), f"'{QUERY}' should be a tensor, not 5"),
    "another shape": (reshaped(QUERY, (2, 8)), rf"'{QUERY}' should have the shape \(4, 4\), but has \(2, 8\)"),
    "another rank": (reshaped(QUERY, (16,)), r"\(4, 4\), but has \(16,\)"),
    "a transposed tensor": (reshaped(QUERY, (4, 4), (1, 4)), rf"'{QUERY}'.*strides \(1, 4\)"),
    "a repeated row": (reshaped(QUERY, (4, 4), (0, 1)), r"strides \(0, 1\)"),
    "values beyond the storage": (reshaped(QUERY, (4, 4), None, 1), f"'{QUERY}': 16 values from number 1"),
    "a start far away": (reshaped(QUERY, (4, 4), None, 1 << 62), f"'{QUERY}': 16 values from number {1 << 62}"),
    "doubles": (replaced(QUERY, np.ones((4, 4))), f"'{QUERY}': its values are a DoubleStorage"),
    "a storage larger than its record": (replaced(QUERY, np.ones((4, 4), "f4"), 17), "64 bytes, but 17 values take 68"),
    "a storage smaller than its record": (replaced(QUERY, np.ones((9, 4), "f4"), 16), "should have the shape"),
    "a storage of 2**62 values": (replaced(QUERY, np.ones((4, 4), "f4"), 1 << 62), f"{1 << 62} values take {1 << 64}"),
    "a storage that is not there": (lambda made: made.bag.storages.pop("0"), f"'{POSITIONS}': its storage '0' is not"),
    "two tensors are one": (tied, "share values"),
    "no sizes": (lambda made: setattr(made, "dims", None), "'dims' should be a dict of sizes, not None"),
    "no number of layers": (lambda made: made.dims.pop("n_text_layer"), r"missing in 'dims' \['n_text_layer'\]"),
    "an unknown size": (size("n_experts", 4), r"unknown \['n_experts'\]"),
    "a size that is a text": (size("n_mels", "80"), r"dims\['n_mels'\] is '80'"),
    "a size that is a truth": (size("n_mels", True), r"dims\['n_mels'\] is True"),
    "no heads": (size("n_text_head", 0), r"dims\['n_text_head'\] is 0"),
    "negative layers": (size("n_text_layer", -1), r"dims\['n_text_layer'\] is -1"),
    "more layers than there are": (size("n_text_layer", 1 << 24), r"missing \['decoder.blocks.1"),
    "layers by the billion": (size("n_text_layer", 1 << 40), r"dims\['n_text_layer'\] is 1099511627776"),
    "too few layers": (size("n_audio_layer", 1), r"Whisper's \['encoder.blocks.1"),
    "heads that do not fit": (size("n_audio_head", 3), "3 heads, which do not divide its width 4"),
    "widths that differ": (size("n_text_state", 6), r"differ in width \(4 and 6\)"),
    "other mel bands": (size("n_mels", 64), "64 mel bands"),
    "another vocabulary": (size("n_vocab", 51870), "that of 51870 tokens is not known"),
    "a wide context": (size("n_audio_ctx", 1500), rf"'{POSITIONS}' should have the shape \(1500, 4\)"),
    "a wide context without its table": (
        lambda made: [size("n_audio_ctx", 1 << 24)(made), drop(POSITIONS)(made)],
        rf"'{POSITIONS}' is missing, and no table of shape \(16777216, 4\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_checkpoint_is_refused(case: str) -> None:
    change, message = CASES[case]
    made = Checkpoint()
    change(made)
    with pytest.raises(ModelFormatError, match=rf"^tiny\.pt.*{message}"):
        read(made.encoded())


def packed(made: Checkpoint, name: str) -> bytes:
    return zip_of(deflated(item.name, item.data) if item.name == name else item for item in made.items())


def with_items(*items: Item) -> bytes:
    names = {item.name for item in items}
    return zip_of([*(item for item in Checkpoint().items() if item.name not in names), *items])


OTHERS: dict[str, tuple[Callable[[], bytes], str]] = {
    "an empty file": (lambda: b"", "begins with b''"),
    "a web page": (lambda: b"<!DOCTYPE html><html>", "begins with b'<!DOCTYPE"),
    "a piece of a file before PyTorch 1.6": (
        lambda: bytes.fromhex("80028a0a6cfc9c46f9206aa850192e80024de9032e"), "byte 21 of the pickle: it does not"
    ),
    "a tar file": (lambda: b"sys_info".ljust(257, b"\0") + b"ustar\x0000".ljust(300, b"\0"), "a tar file"),
    "a bare pickle": (lambda: pickle_of({"dims": {}}), "a bare pickle, which can run code"),
    "a zip file of something else": (lambda: zip_of([Item("a.txt", b"a")]), "0 records NAME/data.pkl"),
    "an empty zip file": (lambda: zip_of([]), "0 records NAME/data.pkl"),
    "two checkpoints": (
        lambda: zip_of([Item("a/data.pkl", b""), Item("b/data.pkl", b"")]), "2 records NAME/data.pkl"
    ),
    "a program": (lambda: with_items(Item("archive/constants.pkl", b"")), "a program of TorchScript"),
    "another byte order": (lambda: with_items(Item("archive/byteorder", b"big")), "not little endian"),
    "a packed storage": (lambda: packed(Checkpoint(), "archive/data/0"), "'archive/data/0' is deflated, but must"),
    "a packed pickle": (lambda: packed(Checkpoint(), "archive/data.pkl"), "record 'archive/data.pkl' is deflated"),
    "a list": (lambda: zip_of([Item("a/data.pkl", pickle_of([1]))]), "it holds a list; an OpenAI checkpoint has"),
    "other keys": (lambda: zip_of([Item("a/data.pkl", pickle_of({"epoch": 1}))]), r"it holds \['epoch'\]; an OpenAI"),
    "tensors alone": (
        lambda: zip_of([Item("a/data.pkl", pickle_of(Checkpoint().state))]),
        "it holds tensors without the model's sizes, .*If config.json lies beside it",
    ),
    "a whole model": (
        lambda: zip_of([Item("a/data.pkl", pickle_of(Call(Name("whisper.model", "Whisper"), ())))]),
        "asks for 'whisper.model.Whisper', which is no part of a checkpoint; nothing was imported or run",
    ),
    "a large pickle": (
        lambda: zip_of([Item("a/data.pkl", bytes((16 << 20) + 1))]), r"16777217 bytes; at most 16777216 are read"
    ),
    "a damaged pickle": (
        lambda: zip_of([Item("a/data.pkl", pickle_of({}), crc=5)]), "'a/data.pkl' at offset .* its checksum is wrong"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_another_file_is_refused(case: str) -> None:
    make, message = OTHERS[case]
    with pytest.raises(ModelFormatError, match=rf"^tiny\.pt.*{message}"):
        read(make())


def test_a_file_that_is_cut_anywhere_is_refused() -> None:
    content = Checkpoint().encoded()
    directory = content.rindex(b"PK\6\6")
    for length in {1, 100, len(content) // 2, *range(directory - 200, len(content))}:
        with pytest.raises(ModelFormatError):
            read(content[:length])
