"""For every reader: a model that is whole, and its damaged copies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from tests import data
from tests.models.formats import same_weights
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.tiny_model import TinyModel
from tests.oracle.vad_model import SmallSilero

from . import checkpoint, folders, ggml, gguf
from .attempts import Outcome, attempt, in_child
from .damage import Damage

SMALL: Final = TinyModel(n_state=64, n_audio_ctx=40, n_text_ctx=64)
FOLDERS: Final = ("huggingface", "ctranslate2")
CASES: Final[dict[str, Callable[[Path], Iterator[Damage]]]] = {
    "ggml": ggml.cases,
    "gguf": gguf.cases,
    "huggingface": folders.huggingface,
    "openai": checkpoint.cases,
    "ctranslate2": folders.ctranslate2,
    "vad": ggml.silero,
}
"""The readers. Damaged copies of a model that is whole; its path is a file or a folder."""

SIZES: Final = ("small", "real")


@dataclass(frozen=True)
class Corpus:
    """A whole model and its damaged copies.

    Attributes
    ----------
    reader : str
        One of `CASES`.
    size : {"small", "real"}
        Random weights, or those of tiny.en.
    whole : pathlib.Path
    damages : sequence of Damage
    made : bool
        Whether the whole model was made for this.
    """

    reader: str
    size: str
    whole: Path
    damages: Sequence[Damage]
    made: bool

    @property
    def n_bytes(self) -> int:
        """The size of the whole model."""
        files = self.whole.iterdir() if self.whole.is_dir() else [self.whole]
        return sum(path.stat().st_size for path in files)

    def run(self, scratch: Path) -> Iterator[Outcome]:
        """Load every damaged copy in a process of its own; one at a time lies in `scratch`."""
        kind = "vad" if self.reader == "vad" else "whisper"
        for i, damage in enumerate(self.damages):
            path = place(damage, self.whole, scratch)
            yield attempt(damage.name, path, kind=kind, way=i, verdict=damage.verdict)

    def tidy(self, scratch: Path) -> None:
        """Remove what `run` left, and a whole model that was made: those of tiny.en take 75 MB each."""
        for path in (scratch, *([self.whole] if self.made else [])):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def place(damage: Damage, whole: Path, scratch: Path) -> Path:
    """Write one damaged copy into a folder of the same disk; return its path. Of a folder, the other files are hard
    links: symbolic ones that lead out of a folder are refused."""
    if not whole.is_dir():
        damage.write(whole, scratch / whole.name)
        return scratch / whole.name
    shutil.rmtree(scratch / "model", ignore_errors=True)
    (scratch / "model").mkdir()
    for path in whole.iterdir():
        if path.name != damage.file:
            os.link(path, scratch / "model" / path.name)
    damage.write(whole / damage.file, scratch / "model" / damage.file)
    return scratch / "model"


def corpus(reader: str, size: str, folder: Path, limit: int | None = None) -> Corpus:
    """Make the whole model of a reader in `folder`, and choose `limit` of its damaged copies.

    Raises
    ------
    tests.data.Unavailable
        The real model is not here.
    """
    path = whole_model(reader, size, folder)
    return Corpus(reader, size, path, chosen(list(CASES[reader](path)), limit), path.parent == folder)


def chosen(damages: list[Damage], limit: int | None) -> list[Damage]:
    """Some of them, the same ones each time, from all parts of the list."""
    if limit is None or limit >= len(damages):
        return damages
    picked = np.random.default_rng(len(damages)).choice(len(damages), limit, replace=False)
    return [damages[i] for i in sorted(picked)]


def whole_model(reader: str, size: str, folder: Path) -> Path:
    """The model that a reader's damaged copies are made of."""
    folder.mkdir(parents=True, exist_ok=True)
    if reader == "vad":
        if size == "real":
            return data.silero_ggml()
        path = folder / "silero.bin"
        path.write_bytes(SmallSilero().to_bytes())
        return path
    ggml_path = data.model_file("tiny.en") if size == "real" else SMALL.write(folder / "small.bin")
    if reader == "ggml":
        return ggml_path
    path = folder / reader if reader in FOLDERS else folder / f"model.{'pt' if reader == 'openai' else reader}"
    if not path.exists():
        # In a process of its own: what it takes must not be there when others are measured.
        ended, value = in_child(lambda: make(reader, ggml_path, path), timeout=600)
        if ended != "done":
            raise RuntimeError(f"the {size} model for {reader} was not made: {value}")
    return path


def make(reader: str, ggml_path: Path, path: Path) -> None:
    same_weights.MAKERS[reader](read(ggml_path), path, None)


@cache
def read(path: Path) -> ModelFile:
    return read_model(path)
