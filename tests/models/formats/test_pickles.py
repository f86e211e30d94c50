"""Pickles are read, never run: whatever one asks for, nothing is imported, called or built, and memory is bounded."""

from __future__ import annotations

import ast
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whispyx.errors import ModelFormatError
from whispyx.models.formats import pickles
from whispyx.models.formats.pickles import Marker, SavedTensor, Storage, read_pickle

from .torch_maker import ORDERED, PROTO, STOP, Bag, Call, Checkpoint, Name, Persistent, global_, pickle_of, text

TENSOR = global_("torch._utils", "_rebuild_tensor_v2")
HALF = Name("torch", "HalfStorage")
STORAGE = Persistent(("storage", HALF, "0", "cpu", 16))
PLACE = Storage("HalfStorage", "0", 16)

ROOM = 200 << 20
"""Bytes that reading may take beyond twice the size of the file."""


def read(content: bytes) -> Any:
    return read_pickle(content, "tiny.pt: a/data.pkl")


def program(*parts: bytes) -> bytes:
    return PROTO + b"".join(parts) + STOP


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 0.1, float("inf"),
        "", "Größe 大", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1, [2, []]], {}, {"a": {0: (1, [])}},
        list(range(2500)), {str(number): number for number in range(2500)}, [["same"] * 3, "same"],
    ],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_data_is_what_python_reads(value: object) -> None:
    # Both from Python's writer and from ours, judged by Python's own reader.
    ours = pickle_of(value)
    assert pickle.loads(ours) == value
    for content in (ours, pickle.dumps(value, 2)):
        assert read(content) == value
        assert type(read(content)) is type(value)


def test_tensors_and_names_are_inert() -> None:
    found = read(pickle_of({"name": HALF, "storage": STORAGE, "tensor": Bag.view(STORAGE, 3, (2, 4))}))
    assert found == {
        "name": Marker("torch.HalfStorage"),
        "storage": PLACE,
        "tensor": SavedTensor(PLACE, 3, (2, 4), (4, 1)),
    }


class Runs:
    """Pickled as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_python_would_run_is_not_run(protocol: int, tmp_path: Path) -> None:
    proof = tmp_path / "it ran"
    calls = [
        Runs(os.system, f"touch '{proof}'"),
        Runs(eval, f"open({str(proof)!r}, 'w')"),
        Runs(exec, f"open({str(proof)!r}, 'w')"),
        Runs(open, str(proof), "w"),
        Runs(subprocess.call, ["touch", str(proof)]),
        Runs(getattr, "", "join"),
        Runs(__import__, "this"),
    ]
    for call in calls:
        with pytest.raises(ModelFormatError, match=r"tiny.pt: a/data.pkl, byte \d+ of the pickle: "):
            read(pickle.dumps(call, protocol))
    assert not proof.exists()
    if protocol == 2:
        with pytest.raises(ModelFormatError, match=rf"byte 2 of .*'{os.system.__module__}.system', which is no part"):
            read(pickle.dumps(calls[0], 2))


def test_no_module_is_imported_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acts_when_imported.py").write_text("raise SystemExit('imported')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelFormatError, match=r"'acts_when_imported\.name'"):
        read(program(global_("acts_when_imported", "name")))
    assert "acts_when_imported" not in sys.modules


def test_the_reader_has_nothing_to_run_code_with() -> None:
    tree = ast.parse(Path(pickles.__file__).read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    # pickletools only names an instruction in a message.
    assert imported == {
        "__future__", "struct", "collections.abc", "dataclasses", "typing", "whispyx.errors", "pickletools"
    }  # fmt: skip
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"eval", "exec", "compile", "getattr", "setattr", "__import__", "globals", "vars", "open"}


def test_reading_raises_no_audit_event_but_imports_of_pickletools() -> None:
    # Python reports imports of pickle's names, programs that are started, files that are opened, code that is compiled.
    script = """
import pickletools, sys
from whispyx.errors import ModelFormatError
from whispyx.models.formats.pickles import read_pickle
events = []
sys.addaudithook(lambda event, arguments: events.append(event))
for line in sys.argv[1:]:
    try:
        read_pickle(bytes.fromhex(line), "x")
    except ModelFormatError:
        pass
print(sorted(set(events)))
"""
    attacks = [pickle.dumps(Runs(os.system, "true"), protocol) for protocol in range(6)]
    attacks += [program(global_("builtins", "eval"), text("1"), b"\x85R"), pickle_of({"x": Bag.view(STORAGE, 0, (4,))})]
    run = [sys.executable, "-c", script, *(attack.hex() for attack in attacks)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout.strip() in ("[]", "['sys._getframe']"), done.stdout


def rebuilt(*arguments: Any) -> bytes:
    return pickle_of(Call(Name("torch._utils", "_rebuild_tensor_v2"), arguments))


def described(*parts: Any) -> bytes:
    return pickle_of(Persistent(parts))


NO_HOOKS = Call(ORDERED, ())

CASES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "byte 0 .*does not begin"),
    "a text": (b"hello", "byte 0 .*does not begin"),
    "only a start": (PROTO, "byte 2 .*ends early"),
    "nothing to return": (program(), "byte 2 .*a value is needed"),
    "two values": (program(b"NN"), "ends with 1 values"),
    "an open sequence": (program(b"(N"), "ends inside a sequence"),
    "more after the end": (program(b"N") + b"N.", "byte 3 .*2 bytes follow"),
    "protocol 0": (b"\x80\0N.", "protocol 0 is not supported"),
    "protocol 4": (pickle.dumps({"a": 1}, 4), "byte 0 .*protocol 4 is not supported; torch.save writes protocol 2"),
    "protocol twice": (program(b"\x80\2N"), "byte 2 .*protocol 2 is not"),
    "eval": (program(global_("builtins", "eval")), "'builtins.eval'"),
    "torch.load": (program(global_("torch", "load"), text("x"), b"\x85R"), "'torch.load'"),
    "a name with dots": (program(global_("torch._utils", "_rebuild_tensor_v2.__globals__")), "__globals__'"),
    "a name in another place": (program(global_("torch", "_utils._rebuild_tensor_v2.x")), "which is no part"),
    "float8": (program(global_("torch._utils", "_rebuild_tensor_v3")), "'torch._utils._rebuild_tensor_v3'"),
    "a name without end": (program(b"c" + b"a" * 5000), "a name has no end within 200 bytes"),
    "a name in other letters": (program(b"c\xffx\ny\n"), "is not a name"),
    "STACK_GLOBAL": (program(text("os"), text("system"), b"\x93"), "byte 20 .*STACK_GLOBAL"),
    "INST": (program(b"(ios\nsystem\n"), "byte 3 .*INST"),
    "OBJ": (program(b"(", TENSOR, b"o"), "OBJ"),
    "NEWOBJ": (program(TENSOR, b")\x81"), "NEWOBJ"),
    "NEWOBJ_EX": (program(TENSOR, b")}\x92"), "NEWOBJ_EX"),
    "EXT1": (program(b"\x82\1"), "EXT1"),
    "EXT4": (program(b"\x84\1\0\0\0"), "EXT4"),
    "a buffer outside": (program(b"\x97"), "NEXT_BUFFER"),
    "a buffer to be locked": (program(b"N\x98"), "READONLY_BUFFER"),
    "BYTEARRAY8": (program(b"\x96" + struct.pack("<Q", 1 << 40)), "BYTEARRAY8"),
    "bytes": (program(b"B\xff\xff\xff\xff"), "BINBYTES"),
    "text of protocol 0": (program(b"Vx\n"), "UNICODE"),
    "an integer of protocol 0": (program(b"I9\n"), "INT "),
    "a persistent name of protocol 0": (program(b"P9\n"), "PERSID"),
    "a copy": (program(b"N2"), "DUP"),
    "a set": (program(b"\x8f"), "EMPTY_SET"),
    "no instruction": (program(b"\xff"), "b'.xff' is not an instruction"),
    "LONG4": (program(b"\x8b\xff\xff\xff\x7f"), "LONG4"),
    "a long integer": (program(b"\x8a\xff" + b"\1" * 255), "an integer has 255 bytes; 8 at most"),
    "a cut integer": (PROTO + b"\x8a\x08\1", "8 bytes are needed, 1 are left"),
    "a text longer than the file": (program(b"X\xff\xff\xff\xff"), f"{2**32 - 1} bytes are needed, 1 are left"),
    "a text that is none": (program(b"X\1\0\0\0\xff"), "a text is not UTF-8"),
    "a sequence without start": (program(b"t"), "the start of a sequence is missing"),
    "a value before the start": (program(b"N(\x85"), "a value is needed, but there is none"),
    "an empty place": (program(b"h\7"), "place 7 of the memory is empty"),
    "a far place": (program(b"Nr\xff\xff\xff\xff"), f"place {2**32 - 1} of the memory is taken or out of range"),
    "a place taken": (program(b"Nq\0q\0"), "place 0 of the memory is taken"),
    "a place for nothing": (program(b"q\0"), "a value is needed"),
    "a key without value": (program(b"}(Nu"), "a key has no value"),
    "a key that is a tuple": (program(b"})Ns"), "a tuple cannot be a key"),
    "a key that is a list": (program(b"}]Ns"), "a list cannot be a key"),
    "a key that is large": (program(b"}\x8a\5\1\1\1\1\1Ns"), "4311810305 cannot be a key"),
    "a key that is a truth": (program(b"}\x88Ns"), "True cannot be a key"),
    "a key twice": (program(b"}(K\1NK\1Nu"), "the key 1 comes twice"),
    "a tensor twice": (program(b"}(", text("w"), b"N", text("w"), b"Nu"), "the key 'w' comes twice"),
    "items of a tuple": (program(b")NNs"), "a dict is needed, not a tuple"),
    "more of a dict": (program(b"}Na"), "a list is needed, not a dict"),
    "a call of a text": (program(text("f"), b")R"), "it calls 'f'; nothing is called here"),
    "a call of a storage": (program(global_("torch", "HalfStorage"), b")R"), "it calls 'torch.HalfStorage'"),
    "a call with a list": (program(TENSOR, b"]R"), "a tuple of arguments is needed, not a list"),
    "an OrderedDict of pairs": (pickle_of(Call(ORDERED, ([],))), "an OrderedDict is made from something"),
    "a parameter of nothing": (pickle_of(Call(Name("torch._utils", "_rebuild_parameter"), ())), "a parameter should"),
    "the state of a name": (program(TENSOR, b"}b"), "sets the state of 'torch._utils._rebuild_tensor_v2'"),
    "the state of a dict": (program(b"}}", text("__class__"), b"Nsb"), "sets the state of a dict; only"),
    "the state of a list": (program(b"]}", text("_metadata"), b"Nsb"), "sets the state of a list"),
    "the slots of a dict": (program(b"}N}\x86b"), "sets the state of a dict; only"),
    "a storage of a name": (described("storage", ORDERED, "0", "cpu", 1), "kind .*not 'collections.OrderedDict'"),
    "a storage of a text": (described("storage", "HalfStorage", "0", "cpu", 1), "kind .*not 'HalfStorage'"),
    "a module": (described("module", HALF, "0", "cpu"), "should be .'storage', kind"),
    "a storage without key": (described("storage", HALF, 0, "cpu", 1), "storage 0 has the size 1"),
    "a storage of size -1": (described("storage", HALF, "0", "cpu", -1), "storage '0' has the size -1"),
    "a storage of size True": (described("storage", HALF, "0", "cpu", True), "storage '0' has the size True"),
    "a persistent text": (program(text("x"), b"Q"), "description of a storage is needed, not 'x'"),
    "a tensor of nothing": (rebuilt(), "made from 0 values, not 6"),
    "a tensor of a text": (rebuilt("x", 0, (), (), False, NO_HOOKS), "made from 'x', not from a storage"),
    "a tensor with hooks": (rebuilt(STORAGE, 0, (), (), False, {"hook": 1}), "has hooks or needs a computation"),
    "a negated tensor": (rebuilt(STORAGE, 0, (), (), False, NO_HOOKS, {"neg": True}), "needs a computation"),
    "a negative start": (rebuilt(STORAGE, -1, (1,), (1,), False, NO_HOOKS), "no sound shape"),
    "a negative length": (rebuilt(STORAGE, 0, (-4, -4), (1, 1), False, NO_HOOKS), "no sound shape"),
    "a length that is a list": (rebuilt(STORAGE, 0, ([],), (1,), False, NO_HOOKS), "no sound shape"),
    "a shape without strides": (rebuilt(STORAGE, 0, (4,), (), False, NO_HOOKS), "no sound shape"),
    "300 axes": (rebuilt(STORAGE, 0, (1,) * 300, (1,) * 300, False, NO_HOOKS), "no sound shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_pickle_is_refused(case: str) -> None:
    content, message = CASES[case]
    with pytest.raises(ModelFormatError, match=message) as caught:
        read(content)
    assert caught.match(r"^tiny.pt: a/data.pkl, byte \d+ of the pickle: ")


def laughs() -> bytes:
    """Each tuple holds the one before twice: 2**100000 leaves, were it ever written out."""
    return program(b"N", *(b"r%bj%b\x86" % (struct.pack("<I", n), struct.pack("<I", n)) for n in range(100_000)))


BOMBS: dict[str, Callable[[], bytes]] = {
    "tuples of the same tuple": laughs,
    "a list that holds itself": lambda: program(b"]q\0h\0a"),
    "a dict that holds itself": lambda: program(b"}q\0K\0h\0s"),
    "a list that holds itself often": lambda: program(b"]q\0(", b"h\0" * 9_000, b"e"),
    "a tuple within 400,000": lambda: program(b")", b"\x85" * 400_000),
    "a list within 150,000": lambda: program(b"]" * 9_000, b"a" * 8_999),
    "lists without end": lambda: program(b"]" * (16 << 20)),
    "dicts thrown into one list": lambda: program(b"]", b"}a" * (8 << 20)),
    "starts without end": lambda: program(b"(" * (16 << 20)),
    "places without end": lambda: program(b"N", b"".join(b"r" + struct.pack("<I", n) for n in range(3 << 20))),
    "small texts": lambda: program(b"]", (text("é" * 9) + b"a") * 600_000),
    "one large text": lambda: program(text("é大" * (3 << 20))),
    "states of a large dict": lambda: program(
        b"}q\0(", b"".join(b"J" + struct.pack("<i", n) + b"N" for n in range(4_900)), b"u", b"h\0h\0b" * 1_000
    ),
    "keys that could collide": lambda: program(
        b"}", b"".join(b"\x8a\x08" + struct.pack("<q", n << 45) + b"Ns" for n in range(160_000))
    ),
    "a large shape": lambda: pickle_of(Bag.view(STORAGE, 0, (2**62,) * 8, (2**62,) * 8)),
}  # fmt: skip


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_takes_bounded_memory(case: str) -> None:
    content = BOMBS[case]()
    tracemalloc.start()
    try:
        try:
            read(content)
        except ModelFormatError as error:
            assert len(str(error)) < 1000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(content) + ROOM


SAMPLE = Checkpoint(layers=(1, 1)).pickle()
PIECES = [
    *(bytes([code]) for code in b"(.NtehRQbsuae)]}\x85\x86\x87\x88\x89"), b"K\1", b"M\1\0", b"q\0", b"h\0", b"h\1",
    b"q\1", text("storage"), text("0"), TENSOR, global_("torch", "HalfStorage"), global_("collections", "OrderedDict"),
    global_("torch._utils", "_rebuild_parameter"), global_("os", "system"), b"\x8a\2\1\1", text("_metadata"),
]  # fmt: skip


def outcome(content: bytes) -> None:
    try:
        read(content)
    except ModelFormatError as error:
        assert len(str(error)) < 1000


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_instructions_are_read_or_refused(parts: list[bytes]) -> None:
    outcome(program(*parts))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    outcome(PROTO + content)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_damaged_pickle_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4), "changes")):
        at = data.draw(st.integers(0, len(content) - 1), "at")
        new = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from(PIECES)), "new")
        content[at : at + data.draw(st.integers(0, 8), "removed")] = new
    outcome(bytes(content))
