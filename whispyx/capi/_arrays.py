"""Pointers to numbers: arrays in, arrays out, nothing copied that has the right type already."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whispyx.capi._struct import checked_int
from whispyx.errors import ParamsError


def floats(name: str, values: Any, n: int | None, n_name: str) -> NDArray[np.float32] | None:
    """Return the first `n` of `values` as float32 (n,); None stands for NULL.

    Any one-dimensional array, buffer or sequence of floating-point numbers will do. `n` None means all.

    Raises
    ------
    TypeError
        Not numbers, or integers: their scale is not known.
    ParamsError
        A negative `n`, fewer values than `n`, or more than one dimension.
    """
    count = None if n is None else checked_int(n_name, n)
    if count is not None and count < 0:
        raise ParamsError(f"{n_name} is {count}; it counts what is there")
    if values is None:
        if count:
            raise ParamsError(f"{name} is NULL, but {n_name} is {count}")
        return None
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers: {error}") from None
    if array.dtype.kind != "f" and array.size:
        raise TypeError(f"{name} must be floating-point numbers, not {array.dtype}")
    if array.ndim != 1:
        raise ParamsError(f"{name} must have one dimension; it has {array.ndim}")
    if count is not None:
        if count > array.size:
            raise ParamsError(f"{n_name} is {count}, but {name} holds {array.size}")
        array = array[:count]
    return np.ascontiguousarray(array, dtype=np.float32)


def token_ids(name: str, values: Any, n: int | None, n_name: str) -> list[int]:
    """Return the first `n` ids of a sequence, all for None.

    Raises
    ------
    TypeError
        Not integers.
    ParamsError
        A negative `n`, fewer values than `n`, NULL with `n` > 0, or an id that int32_t cannot hold.
    """
    count = None if n is None else checked_int(n_name, n)
    if count is not None and count < 0:
        raise ParamsError(f"{n_name} is {count}; it counts what is there")
    if values is None:
        if count:
            raise ParamsError(f"{name} is NULL, but {n_name} is {count}")
        return []
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be a sequence of token ids, not {values!r}")
    if count is None:
        count = len(values)
    if count > len(values):
        raise ParamsError(f"{n_name} is {count}, but {name} holds {len(values)}")
    return [checked_int(f"{name}[{i}]", values[i], "whisper_token") for i in range(count)]


def writable(name: str, target: Any, dtype: type[np.generic], n: int) -> Any:
    """Return `target` as something whose first `n` elements can be assigned: an array that shares its memory.

    Raises
    ------
    TypeError
        It has no writable memory of this type.
    ParamsError
        It is shorter than `n`.
    """
    try:
        view = memoryview(target)
    except TypeError:
        raise TypeError(f"{name} must be a writable array of {np.dtype(dtype)}, not {type(target).__name__}") from None
    array = np.asarray(view).reshape(-1)
    if view.readonly or array.dtype != np.dtype(dtype):
        kind = "read-only " if view.readonly else ""
        raise TypeError(f"{name} must be a writable array of {np.dtype(dtype)}; it is {kind}{array.dtype}")
    if array.size < n:
        raise ParamsError(f"{name} holds {array.size}; {n} are written")
    if not np.shares_memory(array, np.asarray(view)):
        raise TypeError(f"{name} must be contiguous")
    return array
