"""The small structs, and the objects that only functions look into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, overload

from whispyx import capi
from whispyx.compat.pywhispercpp._enums import whisper_alignment_heads_preset
from whispyx.compat.pywhispercpp._values import INT, LONG, SIZE, as_bool, as_float, as_int
from whispyx.errors import StateError

T = TypeVar("T")


class Field(Generic[T]):
    """A field of a struct: converted when it is set, and kept in a struct of `whispyx.capi`.

    `convert` makes what is kept, `back` makes of that what is read, and `zero` is kept in a new struct.
    """

    def __init__(self, convert: Callable[[str, Any], Any], zero: Any, back: Callable[[Any], T] | None = None) -> None:
        self.convert, self.zero, self.back = convert, zero, back

    def __set_name__(self, owner: type[Struct], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, struct: None, owner: type[Struct]) -> Field[T]: ...
    @overload
    def __get__(self, struct: Struct, owner: type[Struct]) -> T: ...
    def __get__(self, struct: Struct | None, owner: type[Struct]) -> Field[T] | T:
        if struct is None:
            return self
        value: T = getattr(struct._c, self.name)
        return value if self.back is None else self.back(value)

    def __set__(self, struct: Struct, value: Any) -> None:
        setattr(struct._c, self.name, self.convert(self.name, value))


def int_field(limits: tuple[int, int] = INT) -> Field[int]:
    """An integer."""
    return Field(partial(as_int, limits=limits), 0)


def float_field() -> Field[float]:
    """A floating-point number."""
    return Field(as_float, 0.0)


def bool_field() -> Field[bool]:
    """A truth."""
    return Field(as_bool, False)


class Struct:
    """Base of the structs. A new one is zero in every field; the functions for defaults make filled ones."""

    __slots__ = ("_c",)
    _c: Any
    _kind: ClassVar[type[Any]]

    def __init__(self) -> None:
        self._c = self._kind()
        for name, field in fields_of(type(self)):
            setattr(self._c, name, field.zero)

    def __dir__(self) -> list[str]:
        # Programs take the names of an object for the names of its fields.
        return [name for name in object.__dir__(self) if name.startswith("__") or not name.startswith("_")]

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()


def fields_of(kind: type[Struct]) -> Iterator[tuple[str, Field[Any]]]:
    """The fields of a struct with their names."""
    return ((name, value) for name, value in vars(kind).items() if isinstance(value, Field))


def filled(kind: type[Struct], c: Any) -> Any:
    """Return an object of `kind` around a struct of `whispyx.capi`."""
    new = kind.__new__(kind)
    new._c = c
    return new


def _preset(name: str, value: Any) -> int:
    if not isinstance(value, whisper_alignment_heads_preset):
        raise TypeError(f"{name} must be a whisper_alignment_heads_preset, not {value!r}")
    return value.value


class whisper_context_params(Struct):
    """How a model is loaded. `dtw_mem_size` is kept and not needed."""

    __slots__ = ()
    _kind = capi.whisper_context_params
    use_gpu = bool_field()
    flash_attn = bool_field()
    gpu_device = int_field()
    dtw_token_timestamps = bool_field()
    dtw_aheads_preset: Field[Any] = Field(_preset, 0, whisper_alignment_heads_preset)
    dtw_n_top = int_field()
    dtw_mem_size = int_field(SIZE)


class whisper_vad_params(Struct):
    """How speech is told from silence."""

    __slots__ = ()
    _kind = capi.whisper_vad_params
    threshold = float_field()
    min_speech_duration_ms = int_field()
    min_silence_duration_ms = int_field()
    max_speech_duration_s = float_field()
    speech_pad_ms = int_field()
    samples_overlap = float_field()


class whisper_vad_context_params(Struct):
    """How a voice activity model is loaded."""

    __slots__ = ()
    _kind = capi.whisper_vad_context_params
    n_threads = int_field()
    use_gpu = bool_field()
    gpu_device = int_field()


class whisper_token_data(Struct):
    """One token of a segment; times in units of 10 ms."""

    __slots__ = ()
    _kind = capi.whisper_token_data
    id = int_field()
    tid = int_field()
    p = float_field()
    plog = float_field()
    pt = float_field()
    ptsum = float_field()
    t0 = int_field(LONG)
    t1 = int_field(LONG)
    t_dtw = int_field(LONG)
    vlen = float_field()


class whisper_token:
    """A type without contents; ids of tokens are int."""

    __slots__ = ()


class whisper_model_loader(capi.whisper_model_loader):
    """Where a model's bytes come from. The extension's has no fields that Python could set; this one has those of
    `whispyx.capi.whisper_model_loader`, so it can be used."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()


class Handle:
    """An object that functions make and look into, and nobody else."""

    __slots__ = ("_c",)
    _c: Any

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} has no constructor; functions make it")


class whisper_context(Handle):
    """A loaded model with its state."""

    __slots__ = ("__weakref__",)


class whisper_vad_context_wrapper(Handle):
    """A voice activity model. The extension does not show this class; its functions make and take it."""

    __slots__ = ()


class whisper_vad_segments(Handle):
    """Where speech is."""

    __slots__ = ()


def handle(kind: type[Handle], c: Any) -> Any:
    """Return an object of `kind` around what `whispyx.capi` made."""
    new = kind.__new__(kind)
    new._c = c
    return new


def opened(kind: type[Handle], value: Any) -> Any:
    """Return what `whispyx.capi` made.

    Raises
    ------
    TypeError
        `value` is of another class.
    StateError
        It is None, which the extension takes for a null pointer and crashes with.
    """
    if value is None:
        raise StateError(f"a {kind.__name__} is needed, not None")
    if not isinstance(value, kind):
        raise TypeError(f"a {kind.__name__} is needed, not {value!r}")
    return value._c
