"""The steps of a case in NumPy and float64: what a referee is held to.

Nothing is rounded on the way; what a type loses when numbers are stored in it is in the inputs already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whispyx._core.optest import decode
from whispyx.plugins.cases import Case, Input

__all__ = ["compute"]

Array = Any  # float64, four dimensions
LN_EPS: Final = 1e-5


def compute(case: Case, inputs: Sequence[Input], decode: Callable[[Any, str], Any] = decode) -> npt.NDArray[np.float64]:
    """Return what a case should give, float64, one-dimensional.

    Parameters
    ----------
    case : Case
    inputs : sequence of tuple
        What `cases.inputs_of` made for it.
    decode : callable
        Turns the bytes of a type into numbers.
    """
    tensors: dict[str, Any] = {}
    for name, type, shape, data, _ in inputs:
        values = data if type in ("i32", "i64") else decode(data, type)
        tensors[name] = np.array(values.reshape((1,) * (4 - len(shape)) + shape), dtype=_wide(type))
    result = tensors[case.inputs[0].name]
    for name, op, *arguments in case.steps:
        operands = [tensors.get(a, a) if isinstance(a, str) else a for a in arguments]
        result = tensors[name] = OPERATIONS[op](*operands)
    return np.ascontiguousarray(result).reshape(-1)


def _wide(type: str) -> Any:
    return np.int64 if type in ("i32", "i64") else np.float64


def _norm(x: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + LN_EPS)


def _gelu(x: Array) -> Array:
    """The form with tanh, which is the one of ggml."""
    return 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _soft_max(x: Array, mask: Array | None, scale: float) -> Array:
    x = x * scale if mask is None else x * scale + mask
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _mul_mat(w: Array, x: Array) -> Array:
    return x @ w.swapaxes(-1, -2)


def _flash_attn(q: Array, k: Array, v: Array, mask: Array | None, scale: float) -> Array:
    return (_soft_max(_mul_mat(k, q), mask, scale) @ v).swapaxes(1, 2)


def _get_rows(x: Array, ids: Array) -> Array:
    return x[:, :, ids.reshape(-1)]


def _set_rows(into: Array, x: Array, slots: Array) -> Array:
    into[:, :, slots.reshape(-1)] = x
    return into


def _cpy(x: Array, into: Array) -> Array:
    into[...] = x.reshape(into.shape)
    return into


def _im2col(kernel: Array, x: Array, stride: int, pad: int, _type: str = "") -> Array:
    """(n_in, n) -> (n_out, 3 n_in) with the taps of one channel side by side"""
    n_taps = kernel.shape[-1]
    padded = np.pad(x[0, 0], ((0, 0), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, n_taps, axis=1)[:, ::stride]
    return windows.swapaxes(0, 1).reshape(1, 1, windows.shape[1], -1)


def _conv_1d(kernel: Array, x: Array, stride: int) -> Array:
    columns = _im2col(kernel, x, stride, kernel.shape[-1] // 2)
    return _mul_mat(columns, kernel[0].reshape(1, 1, kernel.shape[1], -1))


def _permute(x: Array, *axes: int) -> Array:
    """ggml says where each dimension goes, fastest first; NumPy which one comes to each place, slowest first."""
    order = [0, 0, 0, 0]
    for source, target in enumerate(axes):
        order[3 - target] = 3 - source
    return x.transpose(order)


def _view(x: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """Other numbers of the same memory, as ggml sees it: the offset counts from the tensor's first value."""
    owner = x
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    first = x.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return np.ndarray(
        (1,) * (4 - len(shape)) + shape,
        x.dtype,
        owner,
        first + offset * x.itemsize,
        (0,) * (4 - len(shape)) + tuple(step * x.itemsize for step in strides),
    )


OPERATIONS: Final[dict[str, Callable[..., Array]]] = {
    "norm": _norm,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "scale": lambda x, s: x * s,
    "gelu": _gelu,
    "relu": lambda x: np.maximum(x, 0),
    "sqrt": np.sqrt,
    "mul_mat": _mul_mat,
    "soft_max": _soft_max,
    "flash_attn": _flash_attn,
    "get_rows": _get_rows,
    "set_rows": _set_rows,
    "cpy": _cpy,
    "cast": lambda x, _type: x.copy(),
    "cont": lambda x: x.copy(),
    "im2col": _im2col,
    "conv_1d": _conv_1d,
    "permute": _permute,
    "transpose": lambda x: x.swapaxes(-1, -2),
    "reshape": lambda x, shape: x.reshape((1,) * (4 - len(shape)) + shape),
    "view": _view,
}
