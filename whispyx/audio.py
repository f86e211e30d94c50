"""Audio in, samples out: any sound file, any array of samples, as float32 mono at 16 kHz."""

from __future__ import annotations

import io
import logging
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from .constants import SAMPLE_RATE
from .errors import AudioError

if TYPE_CHECKING:
    import soundfile

__all__ = ["AudioSource", "Samples", "load"]

log = logging.getLogger("whispyx.audio")

Samples: TypeAlias = npt.NDArray[np.float32]
AudioSource: TypeAlias = Union[
    str, "os.PathLike[str]", bytes, bytearray, memoryview, IO[bytes], npt.NDArray[Any], Sequence[float]
]
"""What `load` accepts."""

LOUDEST: Final = 1e15
"""Largest magnitude of a sample. Beyond it the power spectrum of 25 ms would not fit into float32."""
MAX_CHANNELS: Final = 64
RATES: Final = (1000, 1_000_000)
"""Sample rates that are taken for real, in Hz."""

_BLOCK: Final = 1 << 18
"""Frames that are decoded, mixed and resampled at a time."""

_DATA_LENGTHS: Final = re.compile(
    r"^ *(?:data|riff|riff size|data size|ssnd) *: (\d+) \(should be (\d+)\)", re.MULTILINE | re.IGNORECASE
)
_UNKNOWN_LENGTH: Final = 0x7FFF_F000
"""What programs write that do not know the length yet, or more."""

# What an integer sample is divided by, and what silence is. Wider and unsigned types have no convention.
_FULL_SCALE: Final = {"int8": (128.0, 0.0), "uint8": (128.0, 128.0), "int16": (2.0**15, 0.0), "int32": (2.0**31, 0.0)}


def load(source: AudioSource, *, sample_rate: float | None = None) -> Samples:
    """Read audio as the recogniser hears it.

    Parameters
    ----------
    source
        One of:

        - a path: any file that libsndfile reads (WAV, FLAC, Ogg Vorbis and Opus, MP3, AIFF, …), of any rate and
          channel count. A file that is cut short gives the samples that exist, and a warning in the log where the
          format lets that be seen; a FLAC file is refused as damaged.
        - `bytes`, `bytearray` or a `memoryview` of bytes: the content of such a file.
        - a binary file object with `read`: the same, from its position on. It need not be seekable.
        - samples: an array, a list of floats, or anything with the buffer or array protocol. float16, float32 and
          float64 have full scale 1; int8, int16 and int32 have the full scale of their type; uint8 is centred on 128.
          Any byte order and strides. Of two dimensions the shorter one is the channels (the last one if they are
          equal); channels are averaged.
    sample_rate : float, optional
        Samples per second of an array, default 16000. Files state their own rate; it is ignored for them.

    Returns
    -------
    numpy.ndarray
        float32, shape (n_samples,), contiguous. It is `source` itself where that has this form already, and then as
        writable as that. No samples (an empty array, a file with nothing after its header) give an empty array.

    Raises
    ------
    AudioError
        The file is missing, empty, damaged or of an unknown kind; the array has another type or shape; a sample is
        NaN or infinite (the message says the first place) or absurdly large (more than 1e15).
    """
    if isinstance(source, (str, os.PathLike)):
        return _load_path(source)
    if isinstance(source, (bytes, bytearray)):
        return _load_file(io.BytesIO(source), "the sound data")
    if isinstance(source, memoryview) and source.format in ("B", "b", "c"):
        return _load_file(io.BytesIO(source if source.c_contiguous else source.tobytes()), "the sound data")
    if callable(getattr(source, "read", None)):
        return _load_object(source)
    return _load_array(source, SAMPLE_RATE if sample_rate is None else sample_rate)


# ---------------------------------------------------------------------------------------------------- files


def _load_path(path: str | os.PathLike[str]) -> Samples:
    name = os.fsdecode(path)
    try:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        shown = name.encode("utf-8", "backslashreplace").decode()
    try:
        kind = os.stat(name).st_mode
        if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):  # /dev/zero never ends
            raise AudioError(f"{shown} is a device, not a sound file")
        if stat.S_ISREG(kind):
            with open(name, "rb") as file:
                return _load_file(file, shown)
        with open(name, "rb", buffering=0) as pipe:
            return _load_object(pipe, shown)
    except (OSError, ValueError) as error:
        if isinstance(error, AudioError):
            raise
        raise AudioError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _load_object(source: Any, shown: str | None = None) -> Samples:
    """Read a file object. libsndfile must seek and its callbacks swallow exceptions, so unless the object is a plain
    file at its start, what it holds is copied to a temporary one first."""
    name = shown or f"the file object {getattr(source, 'name', '') or type(source).__name__}"
    if isinstance(source, (io.BytesIO, io.BufferedReader)) and source.seekable() and source.tell() == 0:
        return _load_file(source, name)
    with tempfile.TemporaryFile() as copy:
        while block := source.read(1 << 20):
            if not isinstance(block, (bytes, bytearray, memoryview)):
                raise AudioError(f"{name} gives {type(block).__name__}, not bytes; open it in binary mode")
            copy.write(block)
        copy.seek(0)
        return _load_file(copy, name)


class _Seekable:
    """What libsndfile sees of a file. Exceptions in its callbacks would be printed and lost, and damaged headers make
    it seek to places that do not exist; so an impossible seek stays where it is."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.read = file.read
        self.tell = file.tell

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return self._file.seek(offset, whence)
        except (OSError, ValueError, OverflowError):
            return self._file.tell()

    def write(self, data: bytes) -> int:
        raise io.UnsupportedOperation("write")


def _load_file(file: IO[bytes], name: str) -> Samples:
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise AudioError(f"sound files cannot be read: the soundfile package does not load: {error}") from error
    if file.seek(0, os.SEEK_END) == 0:
        raise AudioError(f"{name} is empty")
    file.seek(0)
    with ExitStack() as stack:
        try:
            sound = stack.enter_context(soundfile.SoundFile(_Seekable(file), "r"))
        except (soundfile.SoundFileError, RuntimeError, TypeError) as error:
            raise AudioError(f"{name} is not a sound file that can be read: {_reason(error)}") from error
        _warn_if_cut(sound, name)
        _check_rate(sound.samplerate, name)
        if sound.channels > MAX_CHANNELS:
            raise AudioError(f"{name} has {sound.channels} channels; at most {MAX_CHANNELS} are mixed")
        return _assemble(_file_blocks(sound, name), sound.samplerate, sound.frames, name)


def _reason(error: Exception) -> str:
    text = getattr(error, "error_string", None) or str(error)
    return f"{text.rstrip('.')} (if it is one, convert it to WAV or FLAC first)"


def _warn_if_cut(sound: soundfile.SoundFile, name: str) -> None:
    # libsndfile corrects a length that runs past the end of the file, and notes what it should have been.
    # Chunks may count a pad byte and their own head, hence the 8.
    lengths = ((int(said), int(exists)) for said, exists in _DATA_LENGTHS.findall(sound.extra_info))
    if any(exists + 8 < said < _UNKNOWN_LENGTH for said, exists in lengths):
        log.warning("%s is shorter than its header says; %d frames exist", name, sound.frames)


def _file_blocks(sound: soundfile.SoundFile, name: str) -> Iterator[Samples]:
    import soundfile

    buffer = np.empty((_BLOCK, sound.channels), np.float32)
    n_read = 0
    while True:
        try:
            block = sound.read(_BLOCK, dtype="float32", always_2d=True, out=buffer)
        except (soundfile.SoundFileError, RuntimeError) as error:
            raise AudioError(f"{name} is damaged: {_reason(error)}") from error
        if not len(block):
            break
        n_read += len(block)
        yield block
    # An MP3 file may state its length in a frame of its own. A length of 2^63 - 1 is libsndfile's word for unknown.
    if n_read + sound.samplerate / 10 < sound.frames < 2**62:
        log.warning("%s is cut short or damaged: %d of %d frames could be read", name, n_read, sound.frames)


# ---------------------------------------------------------------------------------------------------- arrays


def _load_array(source: Any, sample_rate: float) -> Samples:
    name = "the array"
    try:
        array = np.asarray(source)
    except (ValueError, TypeError) as error:
        raise AudioError(f"{type(source).__name__} cannot be read as audio: {error}") from error
    kind = array.dtype.newbyteorder("=").name
    if array.size == 0 and array.ndim in (1, 2) and array.dtype.kind in "fiu":
        return np.empty(0, np.float32)
    if array.dtype.kind != "f" and kind not in _FULL_SCALE:
        raise AudioError(
            f"samples of type {kind} are not audio (use float16, float32, float64, {', '.join(_FULL_SCALE)})"
            + ("; give a list of integers its type with numpy.array" if kind == "int64" else "")
        )
    _check_rate(sample_rate, name)
    if array.ndim == 2:
        frames_first = array if array.shape[0] >= array.shape[1] else array.T
        if frames_first.shape[1] > MAX_CHANNELS:
            raise AudioError(f"an array of shape {array.shape} has no axis of at most {MAX_CHANNELS} channels")
    elif array.ndim == 1:
        frames_first = array[:, None]
    else:
        raise AudioError(f"samples should have the shape (n,), (n, channels) or (channels, n), not {array.shape}")
    return _assemble(
        _array_blocks(frames_first, kind), sample_rate, len(frames_first), name, _ready(array, sample_rate)
    )


def _ready(array: npt.NDArray[Any], sample_rate: float) -> Samples | None:
    """Return the array if its samples can be used where they are."""
    usable = array.ndim == 1 and sample_rate == SAMPLE_RATE and array.dtype == np.float32 and array.dtype.isnative
    return array if usable and array.flags.c_contiguous and array.flags.aligned else None


def _array_blocks(frames: npt.NDArray[Any], kind: str) -> Iterator[Samples]:
    scale, middle = _FULL_SCALE.get(kind, (1.0, 0.0))
    for start in range(0, len(frames), _BLOCK):
        block = frames[start : start + _BLOCK]
        if kind in _FULL_SCALE:
            # float64 on the way, so that int32 is rounded once
            yield ((block.astype(np.float64) - middle) / scale).astype(np.float32)
        else:
            with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is refused by _check
                converted = block.astype(np.float32, copy=False)
            yield converted


# ---------------------------------------------------------------------------------------------------- both


def _check_rate(rate: float, name: str) -> None:
    low, high = RATES
    if not isinstance(rate, (int, float, np.integer, np.floating)) or isinstance(rate, bool) or not low <= rate <= high:
        raise AudioError(f"{name} has a sample rate of {rate!r}; {low} to {high} Hz can be used")


def _check(block: Samples, start: int, rate: float, name: str) -> None:
    """Refuse samples that would poison the computation, naming the first."""
    with np.errstate(invalid="ignore"):
        good = np.abs(block) <= LOUDEST  # false for NaN, too
    if good.all():
        return
    frame, channel = np.unravel_index(int(np.argmin(good)), block.shape)
    value, index = block[frame, channel], start + int(frame)
    what = "NaN" if np.isnan(value) else "infinite" if np.isinf(value) else f"{value:g}, which is no sound"
    where = f"sample {index} (at {index / rate:.3f} s)" + (f" of channel {channel}" if block.shape[1] > 1 else "")
    raise AudioError(f"{name}: {where} is {what}")


def _mono(block: Samples) -> Samples:
    if block.shape[1] == 1:
        return block[:, 0]
    mixed: Samples = block.mean(axis=1, dtype=np.float32)
    return mixed


class _Output:
    """A float32 array that grows in place when the announced length was wrong."""

    def __init__(self, expected: int) -> None:
        self._data = np.empty(expected, np.float32)
        self._used = 0

    def append(self, samples: Samples) -> None:
        end = self._used + len(samples)
        if end > len(self._data):
            self._data.resize(end + end // 8, refcheck=False)
        self._data[self._used : end] = samples
        self._used = end

    def finish(self) -> Samples:
        self._data.resize(self._used, refcheck=False)
        return self._data


def _assemble(
    blocks: Iterator[Samples], rate: float, n_frames: int, name: str, ready: Samples | None = None
) -> Samples:
    """Check, mix and resample blocks of shape (frames, channels). Announced lengths are not trusted."""
    start = 0
    if ready is not None:
        for block in blocks:
            _check(block, start, rate, name)
            start += len(block)
        return ready
    expected = max(0, min(n_frames, 1 << 26))
    output = _Output(math.ceil(expected * SAMPLE_RATE / rate) + 64)
    convert = _resampler(rate)
    for block in blocks:
        _check(block, start, rate, name)
        start += len(block)
        output.append(convert(_mono(block), False))
    if start:
        output.append(convert(np.empty(0, np.float32), True))
    return output.finish()


def _resampler(rate: float) -> Callable[[Samples, bool], Samples]:
    """Return a function of (samples, last) that gives the samples at 16 kHz which are ready."""
    if rate == SAMPLE_RATE:
        return lambda samples, last: samples
    import soxr

    stream = soxr.ResampleStream(float(rate), SAMPLE_RATE, 1, dtype="float32", quality="HQ")

    def convert(samples: Samples, last: bool) -> Samples:
        ready: Samples = stream.resample_chunk(np.ascontiguousarray(samples), last=last)
        return ready

    return convert
