"""What C structs are in Python: fields in the order of the header, with the conversions that a C compiler would make.

A field refuses what C could not hold: another type raises TypeError, a value out of range raises ParamsError. Structs
are copied when they are assigned to a field of another one, as in C; strings, arrays, callables and user data are kept.
"""

from __future__ import annotations

import enum
import math
import operator
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar, overload

from whispyx._core.state import MAX_THREADS
from whispyx.errors import ParamsError

T = TypeVar("T")
E = TypeVar("E", bound=enum.IntEnum)
S = TypeVar("S", bound="Struct")

__all__: list[str] = []

FLT_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


class Field(ABC, Generic[T]):
    """One field of a struct, as a descriptor. Subclasses say how a value is converted and what its default is."""

    c_type: str

    def __init__(self, c_type: str) -> None:
        self.c_type = c_type

    def __set_name__(self, owner: type[Struct], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, obj: None, owner: type[Struct]) -> Field[T]: ...
    @overload
    def __get__(self, obj: Struct, owner: type[Struct]) -> T: ...
    def __get__(self, obj: Struct | None, owner: type[Struct]) -> Field[T] | T:
        if obj is None:
            return self
        value: T = obj._values[self.name]
        return value

    def __set__(self, obj: Struct, value: Any) -> None:
        obj._values[self.name] = self.convert(value)

    @abstractmethod
    def convert(self, value: Any) -> T:
        """Return what C would store."""

    @abstractmethod
    def default(self) -> T:
        """Return the value of a new struct."""

    def refuse(self, value: object, wanted: str) -> TypeError:
        return TypeError(f"{self.name} must be {wanted}, not {value!r}")


class Simple(Field[T]):
    """A field whose default is a value that cannot change."""

    def __init__(self, c_type: str, default: T) -> None:
        super().__init__(c_type)
        self._default = default

    def default(self) -> T:
        return self._default


class Bool(Simple[bool]):
    """bool: any number; all but zero is true."""

    def __init__(self, default: bool = False) -> None:
        super().__init__("bool", default)

    def convert(self, value: Any) -> bool:
        if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        try:
            return operator.index(value) != 0
        except TypeError:
            raise self.refuse(value, "True or False") from None


class Int(Simple[int]):
    """An integer type of C. What would wrap around is refused."""

    LIMITS: ClassVar[dict[str, tuple[int, int]]] = {
        "int": (-(2**31), 2**31 - 1),
        "whisper_token": (-(2**31), 2**31 - 1),
        "int64_t": (-(2**63), 2**63 - 1),
        "uint32_t": (0, 2**32 - 1),
        "size_t": (0, 2**64 - 1),
    }

    def __init__(self, default: int = 0, c_type: str = "int") -> None:
        super().__init__(c_type, default)

    def convert(self, value: Any) -> int:
        return checked_int(self.name, value, self.c_type)


class Float(Simple[float]):
    """float: rounded to 32 bits, as in C."""

    def __init__(self, default: float = 0.0) -> None:
        super().__init__("float", to_float32("default", default))

    def convert(self, value: Any) -> float:
        return to_float32(self.name, value)


class Enum(Field[E]):
    """An enum: its members, or their numbers."""

    def __init__(self, kind: type[E], default: E) -> None:
        super().__init__(kind.__name__)
        self.kind, self._default = kind, default

    def convert(self, value: Any) -> E:
        number = checked_int(self.name, value, "int")
        try:
            return self.kind(number)
        except ValueError:
            known = ", ".join(f"{member.name} ({member.value})" for member in self.kind)
            raise ParamsError(f"{self.name} is {number}; possible are {known}") from None

    def default(self) -> E:
        return self._default


class Text(Simple["str | bytes | None"]):
    """const char *: str, bytes, a path or None. Kept as it was given."""

    def __init__(self, default: str | None = None) -> None:
        super().__init__("const char *", default)

    def convert(self, value: Any) -> str | bytes | None:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if value is None:
            return None
        if not isinstance(value, (str, bytes)):
            raise self.refuse(value, "str, bytes or None")
        if (b"\0" if isinstance(value, bytes) else "\0") in value:  # type: ignore[operator]
            raise ParamsError(f"{self.name} holds a zero character, which would end it")
        return value


class Callback(Simple["Callable[..., Any] | None"]):
    """A pointer to a function: a callable or None."""

    def __init__(self, c_type: str) -> None:
        super().__init__(c_type, None)

    def convert(self, value: Any) -> Callable[..., Any] | None:
        if value is not None and not callable(value):
            raise self.refuse(value, "callable or None")
        return value  # type: ignore[no-any-return]


class Object(Simple[Any]):
    """void *: any object, handed on as it is."""

    def __init__(self, c_type: str = "void *") -> None:
        super().__init__(c_type, None)

    def convert(self, value: Any) -> Any:
        return value


class Array(Simple[Any]):
    """A pointer to elements: a sequence or None. Read when it is used; the struct's count says how far."""

    def __init__(self, c_type: str) -> None:
        super().__init__(c_type, None)

    def convert(self, value: Any) -> Any:
        if value is not None and (isinstance(value, (str, bytes)) or not hasattr(value, "__len__")):
            raise self.refuse(value, "a sequence or None")
        return value


class Nested(Field[S]):
    """A struct inside a struct: reading gives the inner one itself, assigning copies into a new one."""

    def __init__(self, kind: type[S], c_type: str | None = None) -> None:
        super().__init__(c_type or kind.__name__)
        self.kind = kind

    def convert(self, value: Any) -> S:
        if not isinstance(value, self.kind):
            raise self.refuse(value, f"a {self.kind.__name__}")
        return value.copy()

    def default(self) -> S:
        return self.kind()


class Struct:
    """Base of the structs. Fields are given by name when one is made, or assigned later."""

    __slots__ = ("_values",)
    _values: dict[str, Any]
    C_FIELDS: ClassVar[dict[str, Field[Any]]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: field for name, field in vars(cls).items() if isinstance(field, Field)}
        cls.C_FIELDS = {**cls.C_FIELDS, **own}

    def __init__(self, **fields: Any) -> None:
        self._values = {name: field.default() for name, field in self.C_FIELDS.items()}
        for name, value in fields.items():
            if name not in self.C_FIELDS:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            setattr(self, name, value)

    def copy(self: S) -> S:
        """Return a copy, as an assignment in C makes one: inner structs are copied, what is pointed at is shared."""
        other = type(self)()
        other._values = {
            name: value.copy() if isinstance(value, Struct) else value for name, value in self._values.items()
        }
        return other

    __copy__ = copy

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values == other._values  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


def checked_int(name: str, value: Any, c_type: str = "int") -> int:
    """Return `value` as an integer of a C type.

    Raises
    ------
    TypeError
        It is no integer.
    ParamsError
        The type cannot hold it.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    low, high = Int.LIMITS[c_type]
    if not low <= number <= high:
        raise ParamsError(f"{name} is {number}; {c_type} holds {low} to {high}")
    return number


def thread_count(n_threads: Any, name: str = "n_threads") -> int:
    """Return a number of threads.

    Raises
    ------
    TypeError
        It is no integer.
    ParamsError
        There is none, or more than the engine takes.
    """
    number = checked_int(name, n_threads)
    if not 1 <= number <= MAX_THREADS:
        raise ParamsError(f"{name} is {number}; 1 to {MAX_THREADS} are possible")
    return number


def to_float32(name: str, value: Any) -> float:
    """Return `value` as C's float would hold it.

    Raises
    ------
    TypeError
        It is no number.
    ParamsError
        It is finite and too large for 32 bits.
    """
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {value!r}") from None
    except OverflowError:
        raise ParamsError(f"{name} is {value}; a float holds up to {FLT_MAX}") from None
    if not math.isfinite(number):
        return number
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise ParamsError(f"{name} is {value}; a float holds up to {FLT_MAX}") from None


def as_text(name: str, value: str | bytes | None) -> str | None:
    """Return a char * as str.

    Raises
    ------
    TypeError
        It is neither str, bytes nor None.
    ParamsError
        The bytes are not UTF-8.
    """
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"{name} must be str, bytes or None, not {value!r}")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParamsError(f"{name} is not UTF-8: {error}") from None
