"""What the extension's bindings do with a value before C sees it.

The rules are pybind11's: an integer argument takes whatever has `__index__` or `__int__` but no float, a floating-point
one any number, a bool one any object with a truth of its own (and None), text str or bytes. All else is a TypeError.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any, Final, TypeVar

from whispyx.errors import ParamsError

T = TypeVar("T")

INT: Final = (-(2**31), 2**31 - 1)
LONG: Final = (-(2**63), 2**63 - 1)
SIZE: Final = (0, 2**64 - 1)


class ArgumentError(ParamsError, RuntimeError):
    """Parameters that a run refuses: the extension raises ValueError for some and RuntimeError for others."""


class Misuse(TypeError, RuntimeError):
    """A value in a dict or sequence has the wrong type: the extension raises RuntimeError, where TypeError is meant."""


def as_int(name: str, value: Any, limits: tuple[int, int] = INT) -> int:
    """Return `value` as an integer of C."""
    try:
        number = operator.index(value)
    except TypeError:
        if isinstance(value, float) or not hasattr(type(value), "__int__"):
            raise TypeError(f"{name} must be an integer, not {value!r}") from None
        number = int(value)
    if not limits[0] <= number <= limits[1]:
        raise TypeError(f"{name} is {number}; {limits[0]} to {limits[1]} are possible")
    return number


def as_float(name: str, value: Any) -> float:
    """Return `value` rounded to float32; what float32 cannot hold is infinite, as in C."""
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        return ctypes.c_float(float(value)).value
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {value!r}") from None


def as_bool(name: str, value: Any) -> bool:
    """Return the truth of `value`; None is False, and containers have none."""
    if value is not None and not hasattr(type(value), "__bool__"):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def as_text(name: str, value: Any) -> str:
    """Return str or UTF-8 bytes as C sees them: up to the first zero character."""
    if isinstance(value, (bytes, bytearray)):
        value = value.decode("utf-8")
    if not isinstance(value, str):
        raise TypeError(f"{name} must be str, not {value!r}")
    return value.partition("\0")[0]


def as_tokens(name: str, value: Any) -> tuple[int, ...]:
    """Return a sequence of token ids."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise TypeError(f"{name} must be a sequence of token ids, not {value!r}")
    return tuple(as_int(name, token) for token in value)


def as_callback(name: str, value: Any) -> Callable[..., Any] | None:
    """Return a callable, or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable or None, not {value!r}")
    return value  # type: ignore[no-any-return]


def inside(convert: Callable[..., T], name: str, value: Any) -> T:
    """Convert a value that lies in a container."""
    try:
        return convert(name, value)
    except TypeError as error:
        raise Misuse(str(error)) from None
