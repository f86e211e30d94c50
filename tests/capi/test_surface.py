"""List, module, docstrings, signatures and document say the same: every name of whisper.h, and no other."""

from __future__ import annotations

import enum
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.capi import surface
from whispyx import capi
from whispyx.capi._struct import Struct

ROOT = Path(__file__).resolve().parents[2]
SURFACE = surface.read()
FUNCTIONS = {function.name: function for function in SURFACE.functions}

# What Python needs beside the names of the header: the two structs that have none in C, and grammars made from text.
OF_OUR_OWN = {"Grammar", "whisper_full_params_beam_search", "whisper_full_params_greedy"}


def test_the_list_counts_what_the_header_counts() -> None:
    # 124 functions in the header of 1.8.5, ten more in that of 1.9.2; when each of them came.
    since = Counter(function.since for function in SURFACE.functions)
    assert len(FUNCTIONS) == len(SURFACE.functions) == 134
    assert since.pop("1.9.2") == 10
    assert sum(since.values()) == 124
    assert since == {"1.7.2": 105, "1.7.4": 1, "1.7.5": 1, "1.7.6": 14, "1.8.0": 1, "1.8.5": 2}
    assert sum(function.deprecated for function in SURFACE.functions) == 6
    assert len(SURFACE.structs) == 10 and len(SURFACE.structs["whisper_full_params"]) == 57
    assert len(SURFACE.opaque) == 4 and len(SURFACE.callbacks) == 6 and len(SURFACE.constants) == 4
    assert [len(members) for members in SURFACE.enums.values()] == [2, 15, 7, 6]


def test_the_module_has_exactly_these_names() -> None:
    names = [*FUNCTIONS, *SURFACE.structs, *SURFACE.opaque, *SURFACE.enums, *SURFACE.constants, *SURFACE.types]
    names += [*SURFACE.callbacks, *(member for members in SURFACE.enums.values() for member in members)]
    assert sorted({*names, *OF_OUR_OWN}) == sorted(capi.__all__)
    assert len(capi.__all__) == len(set(capi.__all__))
    for name in capi.__all__:
        assert hasattr(capi, name), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_prototype_and_parameters(name: str) -> None:
    function, entry = getattr(capi, name), FUNCTIONS[name]
    assert inspect.isfunction(function) and function.__module__.startswith("whispyx.capi.")
    documented, _, rest = inspect.getdoc(function).partition("\n\n")
    assert surface.one_line(documented) == entry.prototype
    assert rest.strip(), "what the function does is not said"
    signature = inspect.signature(function)
    assert list(signature.parameters) == entry.parameters
    assert {parameter.kind for parameter in signature.parameters.values()} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values())
    returns = signature.return_annotation
    assert returns is not inspect.Signature.empty
    assert (returns == "None") == entry.prototype.startswith("void ")


def test_structs_have_the_fields_of_c_in_their_order() -> None:
    for name, fields in SURFACE.structs.items():
        kind = getattr(capi, name)
        assert issubclass(kind, Struct) and inspect.getdoc(kind)
        assert [(item.c_type, attribute) for attribute, item in kind.C_FIELDS.items()] == fields, name
        made = kind()
        for _, attribute in fields:
            getattr(made, attribute)
        with pytest.raises(AttributeError):
            made.no_such_field = 1


def test_enums_and_constants_have_the_values_of_c() -> None:
    for name, members in SURFACE.enums.items():
        kind = getattr(capi, name)
        assert issubclass(kind, enum.IntEnum)
        assert {member.name: member.value for member in kind} == members
        for member, value in members.items():
            assert getattr(capi, member) is kind(value)
    for name, value in SURFACE.constants.items():
        assert getattr(capi, name) == value


def test_opaque_structs_are_classes() -> None:
    for name in SURFACE.opaque:
        assert inspect.isclass(getattr(capi, name))


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the tests run outside of the repository: no docs here")
def test_the_document_lists_the_same() -> None:
    text = (ROOT / "docs/capi.md").read_text("utf-8")
    told = text.split("## Everything there is\n", 1)[1].strip()
    assert told == surface.tables().strip(), "python -m tests.capi.surface prints the tables"


def test_the_document_names_nothing_that_does_not_exist() -> None:
    path = ROOT / "docs/capi.md"
    if not path.exists():
        pytest.skip("the tests run outside of the repository: no docs here")
    for name in re.findall(r"`(whisper_\w+)\b", path.read_text("utf-8")):
        assert hasattr(capi, name) or any(known.startswith(name) for known in capi.__all__), name
