"""What the tests of mapped files share: a small model in a GGUF file, and programs in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import whispyx.plugins
from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core.kernels import name as kernels_name
from whispyx.conversion import convert

whispyx.plugins.load()
SOUND = speechlike(4.0, seed=5)
RECIPE = TinyModel(n_vocab=51865, n_text_ctx=64, end_after=20)

PROLOGUE = """
import faulthandler, json, os, signal, sys, threading
import numpy as np
import whispyx
from whispyx import Model
path, compute, how = sys.argv[1:4]
sound = np.load(os.path.join(os.path.dirname(path), "sound.npy"))
whole = open(path, "rb").read()

def attempt(model):
    "The text, or what was raised."
    try:
        return model.transcribe(sound, "en").text
    except whispyx.WhispyxError as error:
        return [type(error).__name__, str(error)]

def restore():
    with open(path, "wb") as file:
        file.write(whole)
"""


def write_model(folder: Path) -> Path:
    """Write the model, and the sound for the programs beside it."""
    convert(pair(RECIPE).path, folder / "model.gguf", progress=None)
    np.save(folder / "sound.npy", SOUND)
    return folder / "model.gguf"


def computes() -> list[str]:
    return ["exact", "mixed"] if kernels_name() is not None else ["exact"]


def child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def tells_of_writing(code: str, path: Path, compute: str, how: str) -> None:
    """Hold a program that prints what was told to saying of each that this file was written to."""
    done = program(code, path, compute, how)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told
    for one in told:
        assert str(path) in one and "written to" in one


def program(code: str, path: Path, compute: str, how: str = "") -> subprocess.CompletedProcess[str]:
    """Run PROLOGUE and what follows it."""
    return child(PROLOGUE + code, str(path), compute, how)
