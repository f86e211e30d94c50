"""One model in every form that loads, heard on the same speech: the table of docs/formats.md.

    python -m tests.conversion.format_table

The weights are those of whisper.cpp's file, written in each form by makers of the tests' own; GGUF also by
`whispyx convert`. A cell compares what is heard with what is heard from whisper.cpp's file of the same type; for int8,
which it does not have, from a folder of the weights that the integers stand for. The random model writes no words, but
every number that it computes decides about what it writes. A form without a vocabulary gets the published one, which
the random model does not have: there the tokens are compared.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tests import data
from tests.models.formats.same_weights import ctranslate2, gguf, huggingface, openai
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.tiny_model import TinyModel
from whispyx import Model
from whispyx.audio import load
from whispyx.conversion import convert, quantize

RANDOM: Final = "random"
MODELS: Final = ("tiny.en", "base", RANDOM)
INT8: Final = "CTranslate2 folder, int8"
QUANTISED: Final = ("q8_0", "q5_1", "q4_0")

Make = Callable[[Path, ModelFile, Path], Any]
"""Takes whisper.cpp's file, what it holds, and an empty folder; returns what `Model` is to open."""


def _to_gguf(model: Path, file: ModelFile, folder: Path) -> Path:
    convert(model, folder / "model.gguf")
    return folder / "model.gguf"


def _and_back(model: Path, file: ModelFile, folder: Path) -> Path:
    convert(_to_gguf(model, file, folder), folder / "back.bin")
    return folder / "back.bin"


def _quantised(kind: str) -> Make:
    def make(model: Path, file: ModelFile, folder: Path) -> Path:
        quantize(model, folder / "model.gguf", kind)
        return folder / "model.gguf"

    return make


FORMS: Final[dict[str, Make]] = {
    "whisper.cpp's file, as bytes": lambda model, file, folder: model.read_bytes(),
    "whisper.cpp's file, opened": lambda model, file, folder: io.BytesIO(model.read_bytes()),
    "GGUF, by `whispyx convert`": _to_gguf,
    "GGUF and back": _and_back,
    "GGUF, by another's layout": lambda model, file, folder: gguf(file, folder / "model.gguf"),
    "Hugging Face folder": lambda model, file, folder: huggingface(file, folder / "model"),
    "Hugging Face folder, f32": lambda model, file, folder: huggingface(file, folder / "model", "f32"),
    "OpenAI's checkpoint": lambda model, file, folder: openai(file, folder / "model.pt"),
    "CTranslate2 folder": lambda model, file, folder: ctranslate2(file, folder / "model"),
    "CTranslate2 folder, f32": lambda model, file, folder: ctranslate2(file, folder / "model", "f32"),
    INT8: lambda model, file, folder: ctranslate2(file, folder / "model", "i8"),
    **{f"GGUF, {kind}": _quantised(kind) for kind in QUANTISED},
}
"""The rows of the table."""


def _rounded(file: ModelFile) -> ModelFile:
    """The weights that the folder in int8 stands for: each row of a matrix in steps of a 127th of its peak."""
    tensors = dict(file.tensors)
    for name, array in file.tensors.items():
        if array.ndim == 2 and 1 not in array.shape and "positional" not in name:
            steps = (127 / np.abs(array).max(axis=1, keepdims=True)).astype(np.float32)
            tensors[name] = np.rint(array * steps) / steps
    return replace(file, tensors=tensors)


def source(name: str, folder: Path) -> Path:
    """whisper.cpp's file of a model."""
    return TinyModel().write(folder / "random.bin") if name == RANDOM else data.model_file(name)


class Heard(NamedTuple):
    """What a model makes of the speech, with its own weights."""

    text: str
    tokens: tuple[int, ...]

    @classmethod
    def by(cls, model: Any, samples: npt.NDArray[np.float32]) -> Heard:
        with Model(model, compute="exact") as loaded:
            found = loaded.transcribe(samples, "en", temperature_inc=0.0)
        return cls(found.text, tuple(token.id for segment in found.segments for token in segment.tokens))


def column(name: str, samples: npt.NDArray[np.float32]) -> dict[str, str]:
    """Hear one model in each form; returns the cells of the table by the names of their rows."""
    cells: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = source(name, Path(folder))
        file, truth = read_model(model), {"": Heard.by(model, samples)}
        for kind in QUANTISED:
            quantize(model, Path(folder, "quantised.bin"), kind)
            truth[f"GGUF, {kind}"] = Heard.by(Path(folder, "quantised.bin"), samples)
        truth[INT8] = Heard.by(huggingface(_rounded(file), Path(folder, "rounded")), samples)
        for form, make in FORMS.items():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                heard = Heard.by(make(model, file, Path(place)), samples)
            cells[form] = cell(heard, truth.get(form, truth[""]))
    return cells


def cell(heard: Heard, truth: Heard) -> str:
    """What the table says."""
    if heard.text == truth.text:
        return "same text"
    if heard.tokens == truth.tokens:
        return "same tokens"
    n_same = sum(one == other for one, other in zip(heard.tokens, truth.tokens, strict=False))
    return f"{n_same} of {len(truth.tokens)} tokens"


def main() -> int:
    samples = load(data.jfk_wav())
    columns = [column(name, samples) for name in MODELS]
    print("| form | " + " | ".join(MODELS) + " |")
    print("|---|" + "---|" * len(MODELS))
    for form in FORMS:
        print(f"| {form} | " + " | ".join(cells[form] for cells in columns) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
