"""The recordings that are transcribed, as files of samples that every worker can read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

RATE = 16_000
GAP_S = 0.6  # between recordings that are joined


def read(path: str | Path) -> npt.NDArray[np.float32]:
    """Samples of a 16 kHz mono recording."""
    import soundfile

    samples, rate = soundfile.read(path, dtype="float32")
    if rate != RATE or samples.ndim != 1:
        raise ValueError(f"{path}: {rate} Hz, {samples.ndim} dimensions; {RATE} Hz mono is needed")
    return np.ascontiguousarray(samples, np.float32)


def joined(paths: list[Path]) -> npt.NDArray[np.float32]:
    """Recordings one behind the other, a little silence between them."""
    gap = np.zeros(int(GAP_S * RATE), np.float32)
    return np.concatenate([part for path in paths for part in (read(path), gap)])


def default_long() -> npt.NDArray[np.float32]:
    """Two and a half minutes of real speech: the clips of an audio book, a speech and a lecture, and all but the
    lecture once more."""
    from tests import data

    clips = [clip.wav for clip in data.librivox_clips()]
    return joined([*clips, data.jfk_wav(), data.lecture_wav(), *clips, data.jfk_wav(), *clips])


def shortest_clip() -> Path:
    """A sentence of about three seconds."""
    from tests import data

    return min((clip.wav for clip in data.librivox_clips()), key=lambda path: path.stat().st_size)


def write_all(folder: Path, long: Path | None) -> dict[str, tuple[str, float]]:
    """Write "jfk", "lecture", its first half minute, and "long" as .npy files; returns (path, seconds) of each."""
    from tests import data

    found = {
        "jfk": read(data.jfk_wav()),
        "lecture": read(data.lecture_wav()),
        "half minute": read(data.lecture_wav())[: 30 * RATE],
        "long": default_long() if long is None else read(long),
    }
    made = {}
    for name, samples in found.items():
        path = folder / f"{name}.npy"
        np.save(path, samples)
        made[name] = (str(path), len(samples) / RATE)
    return made
