"""Quantised models against whisper.cpp's own: the same bytes, and the same text from either engine.

Its command that quantises is built by `python tools/peers.py whisper-quantize`; its engine runs in the environment of
pywhispercpp.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests import data
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel
from tools import peers
from tools.workers.client import Worker, whispercpp
from whispyx import Model
from whispyx.conversion import quantize

KINDS: Final = ("q8_0", "q5_0", "q5_1", "q4_0", "q4_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
"""All that its command can make."""
SHOWN: Final = ("q8_0", "q5_1", "q4_0")
GREEDY: Final[dict[str, Any]] = {"language": "en", "temperature_inc": 0.0, "n_threads": 2}

Quantise = Callable[[Path, Path, str], Path]


@pytest.fixture(scope="module")
def theirs() -> Quantise:
    program = peers.program("whisper-quantize")
    if program is None:  # minutes of compiling: nobody must have it
        pytest.skip("peer whisper-quantize is not set up: python tools/peers.py whisper-quantize")

    def run(source: Path, dest: Path, kind: str) -> Path:
        command = [str(program), str(source), str(dest), kind]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return dest

    return run


@pytest.fixture(scope="module")
def engine(whispercpp_python: Path) -> Iterator[Worker]:
    with whispercpp(whispercpp_python) as worker:
        yield worker


def same(mine: Path, other: Path) -> None:
    """The same file; where it is not, the tensors that differ are named."""
    if mine.read_bytes() == other.read_bytes():
        return
    found, truth = read_model(mine), read_model(other)
    assert (found.settings, found.tokens, found.types) == (truth.settings, truth.tokens, truth.types)
    assert [name for name, array in truth.tensors.items() if not np.array_equal(found[name], array)] == []
    pytest.fail("the files differ, though no tensor does")


def random_model(weight_type: str, path: Path) -> Path:
    return TinyModel(weight_type=weight_type, n_state=256, n_head=4, n_audio_layer=1, n_text_layer=2).write(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_model_gets_the_bytes_of_whisper_cpp(kind: str, theirs: Quantise, tmp_path: Path) -> None:
    model = random_model("f16", tmp_path / "model.bin")
    quantize(model, tmp_path / "mine.bin", kind)
    same(tmp_path / "mine.bin", theirs(model, tmp_path / "theirs.bin", kind))


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_of_f32_get_the_bits_of_whisper_cpp(kind: str, theirs: Quantise, tmp_path: Path) -> None:
    """Matrices alone: it leaves convolutions in f32, and then does not load the file that it wrote."""
    model = random_model("f32", tmp_path / "model.bin")
    quantize(model, tmp_path / "mine.bin", kind)
    found, truth = read_model(tmp_path / "mine.bin"), read_model(theirs(model, tmp_path / "theirs.bin", kind))
    matrices = [name for name, stored in truth.types.items() if stored == kind]
    assert len(matrices) == 6 + 2 * 10 + 1  # of a layer of the encoder, two of the decoder, and the embedding
    for name in matrices:
        assert found.types[name] == kind
        np.testing.assert_array_equal(found[name], truth[name], err_msg=name)


@pytest.mark.parametrize("name", ["tiny.en", "base"])
@pytest.mark.parametrize("kind", SHOWN)
def test_a_real_model_gets_the_bytes_and_the_text_of_whisper_cpp(
    kind: str, name: str, theirs: Quantise, engine: Worker, samples: Path, tmp_path: Path
) -> None:
    source = data.or_skip(data.model_file, name)
    mine, other = tmp_path / "mine.bin", theirs(source, tmp_path / "theirs.bin", kind)
    quantize(source, mine, kind)
    heard = {path.name: text_of(engine, path, samples) for path in (mine, other)}
    with Model(mine, compute="exact") as model:
        text = model.transcribe(np.load(samples), "en", temperature_inc=0.0).text
    print(f"{name} {kind}: {text!r}")
    assert "country" in text
    assert heard == {"mine.bin": text, "theirs.bin": text}
    same(mine, other)


def text_of(engine: Worker, model: Path, samples: Path) -> str:
    engine("load", model=str(model), flash_attn=False)
    answer = engine("full", samples=str(samples), params=GREEDY)
    raw = b"".join(bytes.fromhex(segment["text_hex"]) for segment in answer["segments"])
    return raw.decode().strip()
