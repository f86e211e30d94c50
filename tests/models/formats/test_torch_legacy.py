"""Checkpoints that PyTorch before 1.6 wrote are the same models, and every way in which one can be wrong is named."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelFormatError
from whispyx.models.formats.manifest import Blob, Manifest
from whispyx.models.formats.openai import read_checkpoint
from whispyx.models.formats.sniff import recognise

from .folder_maker import values
from .torch_maker import LEGACY_MAGIC, PROTO, STOP, Call, Checkpoint, Name, Persistent, pickle_of


def read(content: bytes) -> Manifest:
    return read_checkpoint(Blob(content, "old.pt"))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_value_is_that_of_the_newer_layout(dtype: str) -> None:
    old, new = read(Checkpoint(dtype, legacy=True).legacy()), read(Checkpoint(dtype).encoded())
    assert recognise(Checkpoint(dtype, legacy=True).legacy()) == "openai"
    assert (old.format, old.settings, old.vocabulary) == (new.format, new.settings, new.vocabulary)
    assert old.tensors.keys() == new.tensors.keys()
    for name in new.tensors:
        assert np.array_equal(values(old, name), values(new, name)), name


def test_any_order_of_the_storages_is_followed() -> None:
    made = Checkpoint(legacy=True)
    found = read(made.legacy(keys=sorted(made.bag.storages, reverse=True)))
    for name, array in made.arrays.items():
        assert np.array_equal(values(found, name).reshape(array.shape), array), name


KEYS = sorted(Checkpoint(legacy=True).bag.storages)
SYSTEM = {"protocol_version": 1001, "little_endian": False}
WHOLE = Checkpoint(legacy=True).legacy()
N_HEAD = len(WHOLE) - sum(8 + len(raw) for raw in Checkpoint(legacy=True).bag.storages.values()) + 8
"""Bytes before the values of the first storage."""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 1002}, "version is 1002; 1001 is expected"),
        ({"system": SYSTEM}, "little endian"),
        ({"system": []}, "little endian"),
        ({"keys": {}}, "list of its storages is expected, not a dict"),
        ({"keys": [1, 2]}, "list of its storages is expected, not a list"),
        ({"keys": KEYS[1:]}, r"missing in its list \['0'\]"),
        ({"keys": [*KEYS, "x"]}, r"no tensor \['x'\]"),
        ({"keys": [*KEYS, "0"]}, "come twice"),
        ({"sizes": {"0": 3}}, "storage '0' at offset [0-9]+ has 3 values, but [0-9]+ according to its tensors"),
        ({"sizes": {"0": -1}}, "storage '0' at offset [0-9]+ has -1 values"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_wrong_files_are_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelFormatError, match=f"^old.pt: .*{reason}"):
        read(Checkpoint(legacy=True).legacy(**changes))


def test_files_that_are_cut_or_too_long_are_refused() -> None:
    whole = Checkpoint(legacy=True).legacy()
    with pytest.raises(ModelFormatError, match="5 bytes follow the last storage, at offset"):
        read(whole + bytes(5))
    n_weights = sum(map(len, Checkpoint(legacy=True).bag.storages.values()))
    for n in (1, n_weights // 2, n_weights, n_weights + 700, len(whole) - 100):
        with pytest.raises(ModelFormatError, match=r"^old\.pt.*(ends early|ends inside)"):
            read(whole[:-n])


def test_a_size_that_its_tensors_confirm_still_takes_no_memory() -> None:
    """2^60 values, which both places say: the file ends before them."""
    made, n = Checkpoint(legacy=True), 1 << 60
    name = "decoder.ln.bias"
    key = str(list(made.arrays).index(name))
    storage = Persistent(("storage", Name("torch", "HalfStorage"), key, "cpu", n, None))
    made.state[name] = made.bag.view(storage, 0, made.arrays[name].shape)
    with pytest.raises(ModelFormatError, match=f"ends early: storage '{key}' needs {2 * n} bytes"):
        read(made.legacy(sizes={key: n}))


def test_a_storage_of_two_kinds_and_a_part_of_another_are_refused() -> None:
    made = Checkpoint(legacy=True)
    double = Persistent(("storage", Name("torch", "FloatStorage"), "0", "cpu", made.bag.sizes["0"], None))
    made.others = {"again": made.bag.view(double, 0, (1,))}
    with pytest.raises(ModelFormatError, match="several kinds or sizes"):
        read(made.legacy())
    made = Checkpoint(legacy=True)
    part = Persistent(("storage", Name("torch", "HalfStorage"), "0", "cpu", made.bag.sizes["0"], ("0", 0, 1)))
    made.others = {"part": made.bag.view(part, 0, (1,))}
    with pytest.raises(ModelFormatError, match="description of a storage should be"):
        read(made.legacy())


@pytest.mark.parametrize("place", range(4))
def test_no_pickle_of_it_runs_anything(place: int) -> None:
    system = pickle_of({"little_endian": True})
    pickles = [pickle_of(1001), system, Checkpoint(legacy=True).pickle(), pickle_of([])]
    pickles[place] = PROTO + pickle_of(Call(Name("os", "system"), ("true",)))[2:-1] + STOP
    with pytest.raises(ModelFormatError, match=r"'os\.system', which is no part of a checkpoint"):
        read(LEGACY_MAGIC + b"".join(pickles) + struct.pack("<q", 0))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_end_in_a_model_or_a_refusal(data: st.DataObject) -> None:
    """One to four bytes of the pickles and of the first storage's size, replaced, removed or doubled."""
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(len(LEGACY_MAGIC), N_HEAD))
        action = data.draw(st.sampled_from(["replace", "replace", "remove", "double"]))
        if action == "replace":
            damaged[at] = data.draw(st.integers(0, 255))
        elif action == "remove":
            del damaged[at]
        else:
            damaged.insert(at, damaged[at])
    try:
        assert read(bytes(damaged)).format == "openai"
    except ModelFormatError as error:
        assert "old.pt" in str(error)
