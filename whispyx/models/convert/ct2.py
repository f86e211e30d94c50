"""Reader of CTranslate2 model files (`model.bin`, version 6): an index first, then the values block by block."""

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whispyx.errors import ModelError, ModelFormatError

__all__ = ["Ct2File", "Variable"]

VERSION: Final = 6
SPEC: Final = "WhisperSpec"
_MAX_VARIABLES: Final = 100_000
_MAX_RANK: Final = 8
_MAX_NAME_BYTES: Final = 256
_BLOCK_BYTES: Final = 4 << 20  # of float32: small enough to stay in cache, large enough to keep the disk busy

_TYPES: Final[dict[int, tuple[str, np.dtype[Any]]]] = {
    0: ("float32", np.dtype("<f4")),
    1: ("int8", np.dtype("i1")),
    2: ("int16", np.dtype("<i2")),
    3: ("int32", np.dtype("<i4")),
    4: ("float16", np.dtype("<f2")),
    5: ("bfloat16", np.dtype("<u2")),
}


@dataclass(frozen=True)
class Variable:
    """Where one variable lies in the file."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    dtype: np.dtype[Any]
    offset: int

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Length of the first axis; a scalar is one row."""
        return self.shape[0] if self.shape else 1


class Ct2File:
    """An open CTranslate2 Whisper model.

    Parameters
    ----------
    path : Path
        The `model.bin` file.

    Raises
    ------
    ModelFormatError
        The file is cut, is another version or another kind of model, or contradicts itself.
    ModelError
        It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.variables: dict[str, Variable] = {}
        try:
            self._file: io.BufferedReader = path.open("rb")
        except OSError as error:
            raise self._failed(error) from error
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._read_index()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Ct2File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def error(self, reason: str) -> ModelFormatError:
        """Return the error that says what is wrong with this file."""
        return ModelFormatError(f"{self.path}: {reason}")

    def _failed(self, error: OSError) -> ModelError:
        return ModelError(f"reading {self.path} failed: {error.strerror or error}")

    def _take(self, n_bytes: int, what: str) -> bytes:
        try:
            data = self._file.read(n_bytes)
        except OSError as error:
            raise self._failed(error) from error
        if len(data) != n_bytes:
            raise self.error(f"the file ends inside {what} ({len(data)} of {n_bytes} bytes are there)")
        return data

    def _numbers(self, layout: str, what: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self._take(struct.calcsize("<" + layout), what))

    def _text(self, what: str) -> str:
        (length,) = self._numbers("H", what)
        if length > _MAX_NAME_BYTES:
            raise self.error(f"{what} has {length} bytes; at most {_MAX_NAME_BYTES} can be meant")
        raw = self._take(length, what)
        if not raw.endswith(b"\0"):
            raise self.error(f"{what} is not a terminated string")
        try:
            return raw[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not text") from None

    def _read_index(self) -> None:
        (version,) = self._numbers("I", "the version")
        if version != VERSION:
            raise self.error(f"version {version} of the CTranslate2 format is not supported (expected {VERSION})")
        spec = self._text("the name of the model kind")
        if spec != SPEC:
            raise self.error(f"the model is a {spec!r}, not a Whisper model ({SPEC!r})")
        _revision, count = self._numbers("II", "the number of variables")
        if count > _MAX_VARIABLES:
            raise self.error(f"{count} variables are announced; no Whisper model has so many")
        for position in range(count):
            self._read_entry(position)
        (n_aliases,) = self._numbers("I", "the number of aliases")
        if n_aliases > _MAX_VARIABLES:
            raise self.error(f"{n_aliases} aliases are announced; no Whisper model has so many")
        for position in range(n_aliases):
            alias, name = self._text(f"alias {position}"), self._text(f"alias {position}")
            if name not in self.variables:
                raise self.error(f"alias {alias!r} stands for {name!r}, which is not in the file")
            self.variables.setdefault(alias, self.variables[name])
        extra = self._size - self._file.tell()
        if extra:
            raise self.error(f"{extra} unexpected bytes follow the last alias")

    def _read_entry(self, position: int) -> None:
        name = self._text(f"the name of variable {position}")
        what = f"the header of {name!r}"
        (rank,) = self._numbers("B", what)
        if rank > _MAX_RANK:
            raise self.error(f"{name!r} has {rank} dimensions")
        shape = self._numbers(f"{rank}I", what)
        type_id, n_bytes = self._numbers("BI", what)
        if type_id not in _TYPES:
            raise self.error(f"{name!r} has the unknown type {type_id}")
        type_name, dtype = _TYPES[type_id]
        if math.prod(shape) * dtype.itemsize != n_bytes:
            raise self.error(f"{name!r} announces {n_bytes} bytes, which {type_name} of shape {shape} does not have")
        if name in self.variables:
            raise self.error(f"{name!r} is there twice")
        offset = self._file.tell()
        if offset + n_bytes > self._size:
            raise self.error(f"the file ends inside {name!r} ({self._size - offset} of {n_bytes} bytes are there)")
        self.variables[name] = Variable(name, shape, type_name, dtype, offset)
        self._file.seek(n_bytes, os.SEEK_CUR)

    def __contains__(self, name: str) -> bool:
        return name in self.variables

    def __getitem__(self, name: str) -> Variable:
        try:
            return self.variables[name]
        except KeyError:
            raise self.error(f"the variable {name!r} is missing") from None

    def scalar(self, name: str) -> int:
        """Return the value of the integer variable `name`, which has no dimensions."""
        variable = self[name]
        if variable.shape or variable.dtype.kind != "i":
            raise self.error(f"{name!r} should be one integer, but is {variable.type_name} of shape {variable.shape}")
        return int(self._raw(variable, 0, 1)[0])

    def _raw(self, variable: Variable, start: int, stop: int) -> npt.NDArray[Any]:
        """Return rows [start, stop) as stored, flat."""
        per_row = variable.n_elements // max(variable.rows, 1)
        values = np.empty((stop - start) * per_row, variable.dtype)
        self._file.seek(variable.offset + start * per_row * variable.dtype.itemsize)
        if self._file.readinto(values.data.cast("B")) != values.nbytes:
            raise self.error(f"the file became shorter while {variable.name!r} was read")
        return values

    def scale_of(self, variable: Variable) -> Variable:
        """Return where the factors of a quantised variable lie: one number, or one per row."""
        scale = self[variable.name + "_scale"]
        if scale.dtype.kind != "f" or scale.n_elements not in (1, variable.rows):
            raise self.error(
                f"{scale.name!r} should hold 1 or {variable.rows} factors, "
                f"but is {scale.type_name} of shape {scale.shape}"
            )
        return scale

    def _scale(self, variable: Variable) -> npt.NDArray[np.float32]:
        """Return what quantised values were multiplied with: one number, or one per row, as a flat array."""
        scale = self.scale_of(variable)
        values = self._raw(scale, 0, scale.rows).astype(np.float32)
        if not np.all(np.isfinite(values)) or np.any(values == 0):
            raise self.error(f"{scale.name!r} holds a factor that is zero or not finite")
        return values

    def blocks(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """Read rows [start, stop) of a variable in blocks of a few megabytes.

        Parameters
        ----------
        name : str
            Variable of type float32, float16, bfloat16, or int8/int16 with a `<name>_scale` beside it.
        start, stop : int
            Range along the first axis.

        Yields
        ------
        numpy.ndarray
            Flat float16 values where the file holds float16, float32 values otherwise.
        """
        variable = self[name]
        stop = variable.rows if stop is None else stop
        if variable.type_name == "int32":
            raise self.error(f"{name!r} is int32; weights can be float32, float16, bfloat16, int16 or int8")
        scale = self._scale(variable) if variable.dtype.kind == "i" else None
        per_row = max(variable.n_elements // max(variable.rows, 1), 1)
        step = max(_BLOCK_BYTES // (4 * per_row), 1)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            yield self._decode(variable, self._raw(variable, first, last), scale, first, last)

    def _decode(
        self, variable: Variable, raw: npt.NDArray[Any], scale: npt.NDArray[np.float32] | None, first: int, last: int
    ) -> npt.NDArray[Any]:
        values: npt.NDArray[Any]
        if variable.type_name == "bfloat16":
            values = (raw.astype(np.uint32) << 16).view(np.float32)
        elif scale is not None:
            factors = scale if scale.size == 1 else scale[first:last, None]
            values = (raw.astype(np.float32).reshape(last - first, -1) / factors).ravel()
        else:
            values = raw
        if not np.all(np.isfinite(values)):
            raise self.error(f"{variable.name!r} holds values that are not finite")
        return values
