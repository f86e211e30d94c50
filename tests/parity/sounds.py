"""The sounds of the parity run, by name."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import soundfile

from tests import data

RATE: Final = 16000
Samples = npt.NDArray[np.float32]


def _read(path: Path | str) -> Samples:
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE and samples.ndim == 1, path
    result: Samples = samples
    return result


_derived: dict[str, Samples] = {}


def derive(samples: Samples) -> str:
    """Give a sound that was computed a name, and return it."""
    name = "derived" + hashlib.sha256(samples.tobytes()).hexdigest()[:16]
    _derived[name] = samples
    return name


@cache
def array(name: str) -> Samples:
    """Samples of a sound, 16 kHz mono.

    "jfk"; "lecture"; "clip0" to "clip4"; "zeros5": silence of 5 s; "gap3_X": X after 3 s of silence; "X_0.3s": the
    first 0.3 s of X; "lecture20": the first 20 s; what `derive` returned; any other: a sound of the trials. Raises
    `data.Unavailable`.
    """
    if name == "jfk":
        return _read(data.jfk_wav())
    if name == "lecture":
        return _read(data.lecture_wav())
    if match := re.fullmatch(r"lecture(\d+)", name):
        return array("lecture")[: int(match[1]) * RATE]
    if match := re.fullmatch(r"clip(\d)", name):
        return _read(data.librivox_clips()[int(match[1])].wav)
    if match := re.fullmatch(r"zeros(\d+)", name):
        return np.zeros(int(match[1]) * RATE, np.float32)
    if match := re.fullmatch(r"gap(\d+)_(\w+)", name):
        return np.concatenate([np.zeros(int(match[1]) * RATE, np.float32), array(match[2])])
    if match := re.fullmatch(r"(\w+)_([\d.]+)s", name):
        return array(match[1])[: round(float(match[2]) * RATE)]
    if name in _derived:
        return _derived[name]
    from tests.trials import sounds as trials

    return _read(trials.wav(name))


@cache
def digest(name: str) -> str:
    """Checksum of the samples."""
    return hashlib.sha256(array(name).tobytes()).hexdigest()


def as_file(name: str, folder: Path) -> str:
    """Put the samples where both engines can read them without a sound library."""
    path = folder / f"{name}.npy"
    if not path.exists():
        np.save(path, array(name))
    return str(path)
