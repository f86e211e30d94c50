"""The list of known defects (docs/defects.md) and the tests that we do not have them belong together."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COUNTS = {"M": 13, "B": 32, "T": 7, "P": 6, "L": 8, "V": 9}
NUMBERS = [f"{letter}{i}" for letter, n in COUNTS.items() for i in range(1, n + 1)]
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \| `(test_\w+)` \|$", re.MULTILINE)
NAMED = re.compile(r"test_((?:[A-Za-z]\d+_(?:and_)?)+)")  # test_B11_B12_when…, test_m1_and_m2_memory…


@functools.cache
def rows() -> dict[str, tuple[str, str]]:
    found = ROW.findall((ROOT / "docs" / "defects.md").read_text("utf-8"))
    assert len({number for number, _, _ in found}) == len(found), "a number comes twice"
    return {number: (line, test) for number, line, test in found}


@functools.cache
def functions() -> set[str]:
    """Names of all test functions."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and node.body:
                found.add(node.name)
    return found


def numbers_in(name: str) -> set[str]:
    """Numbers that a test's name begins with, in upper case, without leading zeros."""
    match = NAMED.match(name)
    return {f"{letter.upper()}{int(n)}" for letter, n in re.findall(r"([A-Za-z])(\d+)", match[1])} if match else set()


def test_the_numbers_of_a_name_are_found() -> None:
    assert numbers_in("test_B11_B12_when_all") == {"B11", "B12"}
    assert numbers_in("test_m1_and_m2_memory") == {"M1", "M2"}
    assert numbers_in("test_B07_x") == {"B7"}
    assert numbers_in("test_large_v1_is_known") == set()


def test_every_known_defect_is_listed() -> None:
    assert sorted(rows()) == sorted(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_defect_has_the_test_that_is_named(number: str) -> None:
    line, test = rows()[number]
    assert line.strip() and number in numbers_in(test), f"{test} does not begin with {number}"
    assert test in functions(), f"docs/defects.md names {test} for {number}, and there is none"
