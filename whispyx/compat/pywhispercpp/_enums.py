"""The two enums: classes whose members are also names of the module, as pybind11 makes them.

A member equals its number and is none: arithmetic and comparison need `int(member)`. Any number that is not negative
makes an object, with a member's name or without.
"""

from __future__ import annotations

from typing import Any, ClassVar

from whispyx import capi
from whispyx.compat.pywhispercpp._values import as_int

UNSIGNED = (0, 2**32 - 1)


class _Members:
    """The attribute `__members__` of class and members: a new dict at each reading, so that nobody can change them."""

    def __get__(self, member: object, owner: type[_Enum]) -> dict[str, Any]:
        return {name: entry[0] for name, entry in vars(owner)["__entries"].items()}


class _Enum:
    """What both enums have in common."""

    __slots__ = ("_value",)
    _value: int
    __members__ = _Members()

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "_value", as_int("value", value, UNSIGNED))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    @property
    def value(self) -> int:
        """The number."""
        return self._value

    @property
    def name(self) -> str:
        """The member's name, "???" for a number without one."""
        for name, member in type(self).__members__.items():
            if member._value == self._value:
                return name
        return "???"

    def __int__(self) -> int:
        return self._value

    def __index__(self) -> int:
        return self._value

    def __eq__(self, other: object) -> bool:
        return other is not None and bool(self._value == (other._value if isinstance(other, _Enum) else other))

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self._value}>"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __getstate__(self) -> int:
        return self._value

    def __setstate__(self, state: int) -> None:
        object.__setattr__(self, "_value", as_int("state", state, UNSIGNED))

    def __reduce__(self) -> tuple[type[_Enum], tuple[int]]:
        return type(self), (self._value,)


class whisper_sampling_strategy(_Enum):
    """How the next token is chosen."""

    __slots__ = ()
    WHISPER_SAMPLING_GREEDY: ClassVar[whisper_sampling_strategy]
    WHISPER_SAMPLING_BEAM_SEARCH: ClassVar[whisper_sampling_strategy]


class whisper_alignment_heads_preset(_Enum):
    """Whose cross-attention heads follow the sound."""

    __slots__ = ()
    WHISPER_AHEADS_NONE: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_N_TOP_MOST: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_CUSTOM: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_TINY_EN: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_TINY: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_BASE_EN: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_BASE: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_SMALL_EN: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_SMALL: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_MEDIUM_EN: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_MEDIUM: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_LARGE_V1: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_LARGE_V2: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_LARGE_V3: ClassVar[whisper_alignment_heads_preset]
    WHISPER_AHEADS_LARGE_V3_TURBO: ClassVar[whisper_alignment_heads_preset]


def _fill(kind: type[_Enum], names: type[Any]) -> None:
    entries: dict[str, tuple[_Enum, None]] = {}
    for member in names:
        entries[member.name] = kind(member.value), None
        setattr(kind, member.name, entries[member.name][0])
    setattr(kind, "__entries", entries)


_fill(whisper_sampling_strategy, capi.whisper_sampling_strategy)
_fill(whisper_alignment_heads_preset, capi.whisper_alignment_heads_preset)
