"""The same model gives the same bytes, in whatever process, folder and order of hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.formats.same_weights import MAKERS
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel

WAYS = {
    "convert to whisper.cpp's file": ("convert", "huggingface", "model.bin", ()),
    "convert to GGUF": ("convert", "huggingface", "model.gguf", ()),
    "convert from CTranslate2": ("convert", "ctranslate2", "model.gguf", ("--type", "bf16")),
    "quantise": ("quantize", "gguf", "model.bin", ("--type", "q5_1")),
    "quantise to GGUF": ("quantize", "huggingface", "model.gguf", ("--type", "q4_0", "--encoder-type", "q8_0")),
}


@pytest.mark.parametrize("way", WAYS)
def test_twice_is_the_same_to_the_byte(way: str, tmp_path: Path) -> None:
    command, form, name, options = WAYS[way]
    file = read_model(TinyModel(n_vocab=51865).write(tmp_path / "model.bin"))
    made = []
    for seed in ("1", "2"):
        folder = tmp_path / f"run-{seed}"
        source = MAKERS[form](file, folder / "source", None)
        arguments = [sys.executable, "-m", "whispyx", command, str(source), str(folder / name), *options]
        done = subprocess.run(
            arguments, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        made.append((folder / name).read_bytes())
    assert len(made[0]) > 1_000_000
    assert made[0] == made[1]
