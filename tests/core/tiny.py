"""Tiny models, loaded on both sides: by the core and by the oracle."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import whispyx.plugins
from tests.oracle.network import Whisper
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.tiny_model import TinyModel
from whispyx._core.context import Context

K_TYPES = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
WEIGHT_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1", *K_TYPES)

SHAPES = {
    "multilingual": TinyModel(n_vocab=51865),
    "100 languages, 128 bands": TinyModel(n_vocab=51866, n_mels=128),
    "odd audio context": TinyModel(n_audio_ctx=77),
    "longer than 256 positions": TinyModel(n_audio_ctx=300),
    "heads of 64": TinyModel(n_state=128, n_head=2),
    "one layer each": TinyModel(n_audio_layer=1, n_text_layer=1),
    "more encoder than decoder layers": TinyModel(n_audio_layer=4, n_text_layer=2),
    "short text context": TinyModel(n_text_ctx=32, end_after=8),
}

_folder = tempfile.TemporaryDirectory(prefix="whispyx-tiny-")


@dataclass(frozen=True)
class Pair:
    """One model file, the oracle's network of it, and the core's context by way of attention."""

    path: Path

    @functools.cached_property
    def model(self) -> ModelFile:
        return read_model(self.path)

    @functools.cached_property
    def net(self) -> Whisper:
        return Whisper(self.model)

    def context(self, flash_attn: bool) -> Any:
        whispyx.plugins.load()
        return Context.load(str(self.path), flash_attn=flash_attn)


@functools.lru_cache(maxsize=2)
def pair(recipe: TinyModel) -> Pair:
    """Write the model once per test run. The oracle's network of it is six times the file, so few are kept."""
    path = Path(_folder.name) / f"{abs(hash(recipe))}.bin"
    if not path.exists():
        recipe.write(path)
    return Pair(path)


def recipe_of(weight_type: str, **changes: Any) -> TinyModel:
    """A model of some weight type; the K types need rows of 256 weights."""
    width = {"n_state": 256, "n_head": 4} if weight_type in K_TYPES else {}
    return TinyModel(weight_type=weight_type, **{**width, **changes})
