"""docs/environment.md and the source name the same variables, each read in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "environment.md"
NAME = re.compile(r"WHISPYX_[A-Z_]+")

pytestmark = pytest.mark.skipif(not DOCUMENT.exists(), reason="the tests run outside of the repository: no docs here")


def sources() -> list[Path]:
    places = ("whispyx", "tools", "bench")
    found = [path for place in places for path in sorted((ROOT / place).rglob("*.py"))]
    names = ("conftest.py", "core/test_memory.py", "kernels/sets.py", "parity/test_parity.py", "plugins/conftest.py")
    tests = [ROOT / "tests" / name for name in names]
    return [*found, ROOT / "setup.py", *tests]


def is_environment(node: ast.expr) -> bool:
    """`os.environ`, `environ`, or a mapping that is called `env`."""
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id in ("environ", "env")
    )


def names_read(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    keys: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if (node.func.attr == "get" and is_environment(node.func.value)) or node.func.attr == "getenv":
                keys.append(node.args[0])
        elif isinstance(node, ast.Subscript) and is_environment(node.value) and isinstance(node.ctx, ast.Load):
            keys.append(node.slice)
    values = [
        key.value if isinstance(key, ast.Constant) else constants.get(key.id) if isinstance(key, ast.Name) else None
        for key in keys
    ]
    return {value for value in values if isinstance(value, str) and value.startswith("WHISPYX_")}


def documented() -> dict[str, str]:
    rows = re.findall(r"^\| `(WHISPYX_[A-Z_]+)` \|.*\| `([^`|]+)` \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a variable is listed twice"
    return dict(rows)


def test_every_variable_is_read_in_the_one_place_that_the_document_names() -> None:
    read: dict[str, list[str]] = {}
    for path in sources():
        for name in names_read(path):
            read.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: [place] for name, place in documented().items()} == read


def test_compiled_modules_read_no_environment() -> None:
    for path in sorted((ROOT / "whispyx").rglob("*.pyx")):
        assert not re.search(r"\benviron\b|\bgetenv\b", path.read_text("utf-8")), path


def test_the_document_mentions_no_variable_without_a_row() -> None:
    assert set(NAME.findall(DOCUMENT.read_text("utf-8"))) == set(documented())


def test_the_other_documents_mention_no_unknown_variable() -> None:
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]:
        unknown = set(NAME.findall(path.read_text("utf-8"))) - set(documented())
        assert not unknown, f"{path.name} names {unknown}"
