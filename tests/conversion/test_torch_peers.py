"""Models that PyTorch, OpenAI's engine and transformers wrote: we choose the tokens that they choose themselves.

They run in an environment and a process of their own, which `python tools/peers.py openai-whisper` sets up. The weights
are those of whisper.cpp's file, in f16 as OpenAI publishes them; they compute in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pytest

from tests import data
from tests.models.formats.same_weights import flat_bias
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel
from tests.oracle.tokens import Special
from tools import peer_models, peers
from tools.workers.client import Worker, torch
from whispyx import Model
from whispyx.conversion import convert

NAMES: Final = ("tiny.en", "base")
TIMES: Final = pytest.mark.parametrize("timestamps", [False, True], ids=["text", "times"])
SHARD_BYTES: Final = 40_000_000  # several files for either model


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    python = peers.python("openai-whisper")
    if python is None:  # gigabytes: nobody must have it
        pytest.skip("peer openai-whisper is not set up: python tools/peers.py openai-whisper")
    with torch(python) as started:
        yield started


def checkpoint(worker: Worker, model: Path, folder: Path, legacy: bool = False) -> Path:
    """The weights of a ggml file, put into OpenAI's module and saved by PyTorch."""
    file = read_model(model)
    arrays: dict[str, npt.NDArray[Any]] = {name: flat_bias(name, array) for name, array in file.tensors.items()}
    np.savez(folder / "tensors.npz", **arrays)  # type: ignore[arg-type]
    dims = {name: value for name, value in file.settings.items() if name != "ftype"}
    out = folder / "model.pt"
    worker("save_openai", tensors=str(folder / "tensors.npz"), dims=dims, out=str(out), legacy=legacy)
    (folder / "tensors.npz").unlink()
    return out


@pytest.fixture(scope="module", params=NAMES)
def named(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def openai(named: str, worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(worker, data.or_skip(data.model_file, named), tmp_path_factory.mktemp("openai"))


@pytest.fixture(scope="module")
def transformers(
    named: str, worker: Worker, lacking: Callable[[str], NoReturn], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder that transformers wrote. It read one that was written here, with the tokenizer of the weights."""
    source = peer_models.ready(named, "ct2")
    if source is None:
        lacking(f"the tokenizer is not here: python tools/peer_models.py --ct2-only {named}")
    folder = tmp_path_factory.mktemp("transformers")
    peer_models.write_huggingface(source, folder / "written-here")
    worker("save_transformers", source=str(folder / "written-here"), out=str(folder / "model"))
    return folder / "model"


def ours(model: Path, samples: Path, timestamps: bool) -> list[int]:
    with Model(model, compute="exact") as loaded:
        segments = loaded.transcribe(np.load(samples), "en", temperature_inc=0.0, timestamps=timestamps).segments
    return [token.id for segment in segments for token in segment.tokens]


def spoken(model: str, tokens: list[int]) -> list[int]:
    """Text, and times from 0 s on, without the prompt and the end, which one engine gives back and another does not.

    Of two times that follow each other, where one segment ends and the next begins, segments of whisper.cpp and ours
    have one.
    """
    special = Special.of({"tiny.en": 51864, "base": 51865}[model])
    told = [token for token in tokens if token < special.eot or token >= special.beg]
    return [token for last, token in zip([0, *told], told, strict=False) if min(last, token) < special.beg]


def check(model: str, mine: list[int], theirs: list[int], timestamps: bool) -> None:
    mine, theirs = spoken(model, mine), spoken(model, theirs)
    assert mine == theirs
    assert len(mine) > 20, "jfk has more words than that"
    beg = Special.of({"tiny.en": 51864, "base": 51865}[model]).beg
    assert (sum(token >= beg for token in mine) >= 2) == timestamps


@TIMES
def test_we_choose_the_tokens_of_openai_whisper(
    timestamps: bool, named: str, openai: Path, worker: Worker, samples: Path
) -> None:
    theirs = worker("openai", model=str(openai), samples=str(samples), timestamps=timestamps)["tokens"]
    check(named, ours(openai, samples, timestamps), theirs, timestamps)


@TIMES
def test_we_choose_the_tokens_of_transformers(
    timestamps: bool, named: str, transformers: Path, worker: Worker, samples: Path
) -> None:
    theirs = worker("generate", model=str(transformers), samples=str(samples), timestamps=timestamps)["tokens"]
    check(named, ours(transformers, samples, timestamps), theirs, timestamps)


@pytest.mark.parametrize("form", ["openai", "transformers"])
def test_what_they_wrote_becomes_the_file_of_whisper_cpp(
    form: str, named: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    convert(request.getfixturevalue(form), tmp_path / "made.bin")
    assert (tmp_path / "made.bin").read_bytes() == data.or_skip(data.model_file, named).read_bytes()


def test_a_model_in_several_files_of_transformers_is_the_same(
    named: str, transformers: Path, worker: Worker, tmp_path: Path
) -> None:
    arguments = {"source": str(transformers), "out": str(tmp_path / "shards"), "shard_bytes": SHARD_BYTES}
    files = worker("save_transformers", **arguments)["files"]
    assert "model.safetensors.index.json" in files and "model.safetensors" not in files
    convert(tmp_path / "shards", tmp_path / "made.bin")
    assert (tmp_path / "made.bin").read_bytes() == data.or_skip(data.model_file, named).read_bytes()


@pytest.mark.parametrize("n_vocab", [51864, 51865, 51866])
def test_small_checkpoints_of_every_vocabulary_are_read(n_vocab: int, worker: Worker, tmp_path: Path) -> None:
    source = TinyModel(n_vocab=n_vocab, n_mels=128 if n_vocab == 51866 else 80).write(tmp_path / "model.bin")
    convert(checkpoint(worker, source, tmp_path), tmp_path / "made.bin")
    made, truth = read_model(tmp_path / "made.bin"), read_model(source)
    assert made.settings == truth.settings and made.tensors.keys() == truth.tensors.keys()
    for name, array in truth.tensors.items():
        np.testing.assert_array_equal(made[name], array.astype(np.float16), err_msg=name)


def test_the_layout_of_pytorch_before_1_6_is_read_too(worker: Worker, tmp_path: Path) -> None:
    source = TinyModel().write(tmp_path / "model.bin")
    made = []
    for legacy in (False, True):
        saved = checkpoint(worker, source, tmp_path, legacy)
        assert (saved.read_bytes()[:2] == b"PK") != legacy
        convert(saved, tmp_path / "made.bin")
        made.append((tmp_path / "made.bin").read_bytes())
    assert made[0] == made[1]
