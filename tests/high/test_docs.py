"""The documents and the source say the same."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from whispyx import errors, writers
from whispyx.cli.parser import make_parser
from whispyx.cli.status import Status
from whispyx.errors import CODES, WhispyxError

from .fakes import FakeEngine, FakeSegment, seconds_of_audio

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the tests run outside of the repository: no docs here")


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def subcommands() -> dict[str, argparse.ArgumentParser]:
    actions = make_parser()._actions
    return dict(next(a.choices for a in actions if isinstance(a, argparse._SubParsersAction)))


def test_every_exception_is_in_the_table_with_the_builtin_it_is() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", text_of("docs/errors.md"), re.MULTILINE))
    classes = {name: kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)}
    assert {name for name in rows if name in classes} == set(classes)
    for name, kind in classes.items():
        own = [base.__name__ for base in kind.__bases__ if not issubclass(base, WhispyxError)]
        assert rows[name] == (own[0] if own else ""), name


def test_every_status_code_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(whisper_\w+)` \| (-?\d+) \| `(\w+)` \| (.+) \|$", text_of("docs/errors.md"), re.MULTILINE)
    documented = {(function, int(code)): (kind, meaning) for function, code, kind, meaning in rows}
    assert documented == {key: (kind.__name__, meaning) for key, (kind, meaning) in CODES.items()}


def test_every_exit_code_is_in_the_table_and_in_the_help() -> None:
    rows = re.findall(r"^\| (\d+) \|", text_of("docs/errors.md"), re.MULTILINE)
    assert [int(row) for row in rows] == [int(status) for status in Status]
    told = re.findall(r"\b(\d+) [a-z]", make_parser().epilog or "")
    assert [int(code) for code in told] == [int(status) for status in Status]


def with_verbs(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parser of a command and those of its verbs, such as that of `whispyx backends build`."""
    verbs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(verb for action in verbs for verb in action.choices.values())]


def test_every_command_and_every_flag_is_described() -> None:
    text = text_of("docs/cli.md")
    for name, parser in subcommands().items():
        assert f"## whispyx {name}" in text
        section = text.split(f"## whispyx {name}", 1)[1].split("\n## ", 1)[0]
        general = text.split("\n## ", 1)[0]
        for one in with_verbs(parser):
            for flag in one._option_string_actions:
                assert re.search(rf"`{flag}\b", section + general) or flag == "-h", f"{name} {flag}"


def test_no_flag_is_described_that_does_not_exist() -> None:
    parsers = [make_parser(), *(one for parser in subcommands().values() for one in with_verbs(parser))]
    flags = {flag for parser in parsers for flag in parser._option_string_actions}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text_of("docs/cli.md"))) <= flags


def test_every_format_is_described() -> None:
    for name in writers.formats():
        assert f"**{name}**" in text_of("docs/cli.md")


def test_links_between_documents_lead_somewhere() -> None:
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_examples_of_the_readme_run(
    install: Callable[[FakeEngine], FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert blocks
    engine = install(FakeEngine((FakeSegment(0, 100, b" Hello."), FakeSegment(100, 200, b" World."))))
    engine.load_audio = lambda audio, sample_rate: seconds_of_audio(3.0)  # type: ignore[method-assign]
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert engine.asked
