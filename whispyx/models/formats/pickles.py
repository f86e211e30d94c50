"""What a pickle of PyTorch holds, found without running it.

A pickle is a program for a small stack machine, and loading one with Python's `pickle` runs whatever the program calls.
A subclass of `pickle.Unpickler` that filters names would still be that machine, with its calls, its states set on
objects and its limits (none). So this is another machine: it knows the instructions that `torch.save` writes, its
values are numbers, texts, tuples, lists, dicts and the three records below, a known name is a mark without meaning, and
it has no way to import, construct or call anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from whispyx.errors import ModelFormatError

__all__ = ["Marker", "SavedTensor", "Storage", "described", "read_pickle", "read_pickles"]

T = TypeVar("T")

# A checkpoint of the largest Whisper needs 40,000 instructions, and one with the state of its optimiser four times as
# many. pickle writes dicts in batches of 1,000 pairs, so a stack needs little more than 2,000 places.
_MAX_INSTRUCTIONS: Final = 500_000
_MAX_STACK: Final = 10_000
_MAX_MARKS: Final = 1_000
_MAX_RANK: Final = 8
_MAX_LONG_BYTES: Final = 8
_MAX_NAME: Final = 200
_MAX_INTEGER_KEY: Final = 65_535  # numbers of an optimiser's parameters

_ORDERED_DICT: Final = "collections.OrderedDict"
_TENSOR: Final = "torch._utils._rebuild_tensor_v2"
_PARAMETER: Final = "torch._utils._rebuild_parameter"
_STORAGES: Final = {
    f"torch.{kind}Storage"
    for kind in ("Half", "Float", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool")
}
_KNOWN: Final = {_ORDERED_DICT, _TENSOR, _PARAMETER} | _STORAGES


@dataclass(frozen=True, slots=True)
class Marker:
    """A name of Python that the pickle mentions. It is no more than that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Storage:
    """A run of `n` values of one kind ("HalfStorage"), in the record `key` of the archive."""

    kind: str
    key: str
    n: int


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A view of a storage: `start` and `strides` count values, `shape` has the slowest axis first."""

    storage: Storage
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_pickle(data: bytes, name: str) -> object:
    """Find what a pickle of `torch.save` holds.

    Parameters
    ----------
    data : bytes
        A pickle of protocol 2.
    name : str
        How messages call it.

    Returns
    -------
    object
        Of dict, list, tuple, str, int, float, bool, None, Marker, Storage and SavedTensor. Parts may be shared, and a
        list or dict may hold itself.

    Raises
    ------
    ModelFormatError
        The pickle names, calls or builds anything that a tensor or a dict does not need, is damaged, or is too large.
        The message has the offset of the instruction.
    """
    machine = _Machine(data, name)
    value = machine.run()
    if machine.at != len(data):
        raise machine.error(f"{len(data) - machine.at} bytes follow its end")
    return value


def read_pickles(data: bytes, name: str, at: int, n: int) -> tuple[list[object], set[Storage], int]:
    """Find what `n` pickles hold that lie one behind the other, from byte `at` on.

    Returns
    -------
    list of object
        What `read_pickle` finds in each.
    set of Storage
        All that they mention.
    int
        Where the last one ends.

    Raises
    ------
    ModelFormatError
        As for `read_pickle`.
    """
    values: list[object] = []
    storages: set[Storage] = set()
    for _ in range(n):
        machine = _Machine(data, name, at)
        values.append(machine.run())
        storages |= machine.storages
        at = machine.at
    return values, storages, at


def described(value: object) -> str:
    """Name a value of a pickle in a few words, however large it is, and whatever it shares."""
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else f"{value[:80]}…")
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return repr(value.name) if isinstance(value, Marker) else f"a {type(value).__name__}"


class _Machine:
    def __init__(self, data: bytes, name: str, at: int = 0) -> None:
        self.data, self.name = data, name
        self.first = at
        self.at = at  # of the next byte
        self.start = at  # of the present instruction
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.storages: set[Storage] = set()

    def run(self) -> object:
        if self.data[self.at : self.at + 1] != b"\x80":
            raise self.error("it does not begin as a pickle of protocol 2 does")
        for _ in range(_MAX_INSTRUCTIONS):
            self.start = self.at
            code = self.take(1)
            if code == b".":
                return self.finish()
            step = _STEPS.get(code)
            if step is None:
                raise self.error(f"{_opcode(code)} is not an instruction that a checkpoint needs")
            step(self)
            if len(self.stack) > _MAX_STACK:
                raise self.error(f"more than {_MAX_STACK} values are on the stack")
        raise self.error(f"it has more than {_MAX_INSTRUCTIONS} instructions")

    def finish(self) -> object:
        value = self.pop()
        if self.marks:
            raise self.error("it ends inside a sequence")
        if self.stack:
            raise self.error(f"it ends with {len(self.stack)} values that belong to nothing")
        return value

    def error(self, reason: str) -> ModelFormatError:
        return ModelFormatError(f"{self.name}, byte {self.start} of the pickle: {reason}")

    def take(self, n_bytes: int) -> bytes:
        part = self.data[self.at : self.at + n_bytes]
        if len(part) != n_bytes:
            raise self.error(f"it ends early: {n_bytes} bytes are needed, {len(part)} are left")
        self.at += n_bytes
        return part

    def number(self, layout: str) -> int:
        value = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        assert isinstance(value, int)
        return value

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + _MAX_NAME)
        if end < 0:
            raise self.error(f"a name has no end within {_MAX_NAME} bytes")
        raw = self.take(end + 1 - self.at)[:-1]
        try:
            return raw.decode("ascii")
        except UnicodeDecodeError:
            raise self.error(f"{raw!r} is not a name") from None

    def pop(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self.error("a value is needed, but there is none")
        return self.stack.pop()

    def pop_as(self, kind: type[T], what: str) -> T:
        value = self.pop()
        if not isinstance(value, kind):
            raise self.error(f"{what} is needed, not {described(value)}")
        return value

    def pop_to_mark(self) -> list[object]:
        if not self.marks:
            raise self.error("the start of a sequence is missing")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    # One method per instruction, in the order of the table below.

    def protocol(self) -> None:
        protocol = self.take(1)[0]
        if self.start != self.first or protocol != 2:
            raise self.error(f"protocol {protocol} is not supported; torch.save writes protocol 2")

    def mark(self) -> None:
        if len(self.marks) >= _MAX_MARKS:
            raise self.error(f"sequences are nested deeper than {_MAX_MARKS}")
        self.marks.append(len(self.stack))

    def long(self) -> None:
        n_bytes = self.take(1)[0]
        if n_bytes > _MAX_LONG_BYTES:
            raise self.error(f"an integer has {n_bytes} bytes; {_MAX_LONG_BYTES} at most")
        self.stack.append(int.from_bytes(self.take(n_bytes), "little", signed=True))

    def text(self) -> None:
        raw = self.take(self.number("<I"))
        try:
            self.stack.append(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise self.error("a text is not UTF-8") from None

    def tuple_of(self, n: int) -> None:
        values = [self.pop() for _ in range(n)]
        self.stack.append(tuple(reversed(values)))

    def append(self, values: list[object]) -> None:
        target = self.pop_as(list, "a list")
        target.extend(values)
        self.stack.append(target)

    def set_items(self, flat: list[object]) -> None:
        target = self.pop_as(dict, "a dict")
        if len(flat) % 2:
            raise self.error("a key has no value")
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            # Other keys would have to be hashed: the hash of a tuple in a tuple in a tuple… overflows the stack, and
            # large integers can be chosen so that a dict of them takes time by the square of its size.
            if not isinstance(key, str) and not (type(key) is int and 0 <= key <= _MAX_INTEGER_KEY):
                raise self.error(f"{described(key)} cannot be a key")
            if key in target:
                raise self.error(f"the key {described(key)} comes twice")
            target[key] = value
        self.stack.append(target)

    def put(self, index: int) -> None:
        if index >= _MAX_INSTRUCTIONS or index in self.memo:
            raise self.error(f"place {index} of the memory is taken or out of range")
        value = self.pop()
        self.memo[index] = value
        self.stack.append(value)

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise self.error(f"place {index} of the memory is empty")
        self.stack.append(self.memo[index])

    def name_of(self) -> None:
        name = f"{self.line()}.{self.line()}"
        if name not in _KNOWN:
            raise self.error(f"it asks for {name!r}, which is no part of a checkpoint; nothing was imported or run")
        self.stack.append(Marker(name))

    def persistent(self) -> None:
        parts = self.pop_as(tuple, "the description of a storage")
        if len(parts) == 6 and parts[5] is None:  # before PyTorch 1.6: of which storage it is a part
            parts = parts[:5]
        if len(parts) != 5 or parts[0] != "storage":
            raise self.error("the description of a storage should be ('storage', kind, key, device, size)")
        _, kind, key, _, n = parts
        if not isinstance(kind, Marker) or kind.name not in _STORAGES:
            raise self.error(f"the kind of a storage is needed, not {described(kind)}")
        if not isinstance(key, str) or not _is_count(n):
            raise self.error(f"storage {described(key)} has the size {described(n)}")
        storage = Storage(kind.name.removeprefix("torch."), key, n)
        self.storages.add(storage)
        self.stack.append(storage)

    def reduce(self) -> None:
        arguments = self.pop_as(tuple, "a tuple of arguments")
        function = self.pop()
        if not isinstance(function, Marker) or function.name in _STORAGES:
            raise self.error(f"it calls {described(function)}; nothing is called here")
        if function.name == _ORDERED_DICT:
            if arguments:
                raise self.error("an OrderedDict is made from something")
            self.stack.append({})
        elif function.name == _TENSOR:
            self.stack.append(self.tensor(arguments))
        elif len(arguments) == 3 and isinstance(arguments[0], SavedTensor):
            self.stack.append(arguments[0])
        else:
            raise self.error("a parameter should be made from a tensor, a truth value and a dict")

    def tensor(self, arguments: tuple[object, ...]) -> SavedTensor:
        if len(arguments) not in (6, 7):
            raise self.error(f"a tensor is made from {len(arguments)} values, not 6")
        storage, start, shape, strides, _, hooks = arguments[:6]
        if not isinstance(storage, Storage):
            raise self.error(f"a tensor is made from {described(storage)}, not from a storage")
        if hooks or (len(arguments) == 7 and arguments[6]):
            # Among them: the values are to be negated, or conjugated, before use.
            raise self.error(f"the tensor in storage {described(storage.key)} has hooks or needs a computation")
        for numbers in (shape, strides):
            if not isinstance(numbers, tuple) or len(numbers) > _MAX_RANK or not all(map(_is_count, numbers)):
                raise self.error(f"the tensor in storage {described(storage.key)} has no sound shape or strides")
        assert isinstance(shape, tuple) and isinstance(strides, tuple)
        if len(shape) != len(strides) or not _is_count(start):
            raise self.error(f"the tensor in storage {described(storage.key)} has no sound shape or strides")
        assert isinstance(start, int)
        return SavedTensor(storage, start, shape, strides)

    def build(self) -> None:
        state, target = self.pop(), self.pop()
        # The versions of the modules that a state_dict came from. Whatever else is to be set is refused.
        known = isinstance(state, dict) and len(state) == 1 and "_metadata" in state
        if not isinstance(target, dict) or not known:
            raise self.error(f"it sets the state of {described(target)}; only a state_dict's '_metadata' is known")
        self.stack.append(target)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _opcode(code: bytes) -> str:
    import pickletools  # only for the name, and slow to import

    names = [known.name for known in pickletools.opcodes if known.code.encode("latin-1") == code]
    return f"{names[0]} ({code!r})" if names else repr(code)


def _pushes(value: Callable[[], object]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(value())


def _reads(layout: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(struct.unpack(layout, machine.take(struct.calcsize(layout)))[0])


_STEPS: Final[dict[bytes, Callable[[_Machine], None]]] = {
    b"\x80": _Machine.protocol,
    b"(": _Machine.mark,
    b"N": _pushes(lambda: None),
    b"\x88": _pushes(lambda: True),
    b"\x89": _pushes(lambda: False),
    b"K": _reads("<B"),
    b"M": _reads("<H"),
    b"J": _reads("<i"),
    b"G": _reads(">d"),
    b"\x8a": _Machine.long,
    b"X": _Machine.text,
    b")": _pushes(tuple),
    b"t": lambda machine: machine.stack.append(tuple(machine.pop_to_mark())),
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"]": _pushes(list),
    b"a": lambda machine: machine.append([machine.pop()]),
    b"e": lambda machine: machine.append(machine.pop_to_mark()),
    b"}": _pushes(dict),
    b"s": lambda machine: machine.set_items([machine.pop(), machine.pop()][::-1]),
    b"u": lambda machine: machine.set_items(machine.pop_to_mark()),
    b"q": lambda machine: machine.put(machine.number("<B")),
    b"r": lambda machine: machine.put(machine.number("<I")),
    b"h": lambda machine: machine.get(machine.number("<B")),
    b"j": lambda machine: machine.get(machine.number("<I")),
    b"c": _Machine.name_of,
    b"Q": _Machine.persistent,
    b"R": _Machine.reduce,
    b"b": _Machine.build,
}
