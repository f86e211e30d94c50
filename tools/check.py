"""Everything that must hold before a change is taken: style, types, layers, sizes, hygiene, tests.

    python tools/check.py                    all steps, the tests last
    python tools/check.py lint types         only these
    python tools/check.py --list
    python tools/check.py tests -- -k mel    what comes after -- goes to pytest

Ruff and mypy come with `pip install -e '.[lint]'`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MAX_LINES: Final = 500
MAX_WIDTH: Final = 120
CODE: Final = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".cpp"}
TEXT: Final = CODE | {".md", ".toml", ".txt", ".in", ".cfg", ".yml", ".yaml", ".sh", ".patch", ".json", ".cmake", ""}
MEDIA: Final = {".flac", ".png"}  # all that may be in the repository beside text

# Written in pieces, so that this file does not hold what it looks for.
_PLACES: Final = ("wo" + "rk", "tm" + "p", "ro" + "ot", "ho" + "me/[a-z]")
_INDEX: Final = ("py" + r"pi\.org", "pythonho" + r"sted\.org")
FORBIDDEN: Final = {
    "a path of one machine": re.compile(rf"(?<![\w.$}}*-])/(?:{'|'.join(_PLACES)})(?:/|\b)"),
    "the host of a package index": re.compile("|".join(_INDEX)),
    "the number of an issue": re.compile(r"\bissue #?\d+\b", re.IGNORECASE),
    "a note to finish later": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
}


def sources() -> Iterator[Path]:
    """Every file of the repository, committed or not yet, but nothing that git ignores."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True)
    if listed.returncode != 0:
        raise SystemExit(f"check: the files are listed by git, which failed: {listed.stderr.decode().strip()}")
    for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
        path = ROOT / name
        if path.is_file():
            yield path


def _text(path: Path) -> str | None:
    if path.suffix not in TEXT:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _report(problems: list[str]) -> bool:
    for problem in problems:
        print(f"  {problem}")
    return not problems


def run(*arguments: str) -> bool:
    """Run a module of this Python; return whether it ended well."""
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT).returncode == 0


def lint(_: list[str]) -> bool:
    """ruff: style, imports, common mistakes"""
    return run("ruff", "check", ".") and run("ruff", "format", "--check", ".")


def types(_: list[str]) -> bool:
    """mypy, strict, on whispyx and tools"""
    return run("mypy")


def layers(_: list[str]) -> bool:
    """who may import whom"""
    return run("pytest", "-q", "tests/test_layers.py")


def sizes(_: list[str]) -> bool:
    """no source file above 500 lines, no line above 120 characters"""
    problems = []
    for path in sources():
        text = _text(path) if path.suffix in CODE else None
        if text is None or text.startswith("# Made by "):  # a program wrote it
            continue
        lines = text.splitlines()
        name = path.relative_to(ROOT)
        if len(lines) > MAX_LINES:
            problems.append(f"{name}: {len(lines)} lines; {MAX_LINES} at most, so split it by idea")
        problems += [
            f"{name}:{number}: {len(line)} characters; {MAX_WIDTH} at most"
            for number, line in enumerate(lines, 1)
            if len(line) > MAX_WIDTH
        ]
    return _report(problems)


def hygiene(_: list[str]) -> bool:
    """nothing in the texts that belongs to one machine, one index or one day; nothing built is committed"""
    problems = []
    for path in sources():
        name = path.relative_to(ROOT)
        if path.suffix in (".so", ".o", ".a", ".whl", ".pyc"):
            problems.append(f"{name}: built files are not kept in the repository")
        elif path.suffix not in MEDIA and b"\0" in path.read_bytes():
            problems.append(f"{name}: is neither text nor sound; what programs leave behind is not kept")
        for number, line in enumerate((_text(path) or "").splitlines(), 1):
            if path.suffix == ".patch" and line[:1] in ("-", " "):
                continue  # the words of those whose file is changed
            found = [what for what, pattern in FORBIDDEN.items() if pattern.search(line)]
            problems += [f"{name}:{number}: holds {what}" for what in found]
            if line != line.rstrip() and path.suffix != ".patch":  # an empty line of context is one blank
                problems.append(f"{name}:{number}: ends in blanks")
    return _report(problems)


def tests(rest: list[str]) -> bool:
    """all tests"""
    return run("pytest", *rest)


STEPS: Final[dict[str, Callable[[list[str]], bool]]] = {
    step.__name__: step for step in (lint, types, layers, sizes, hygiene, tests)
}


def main() -> int:
    """Run the chosen steps; return 0 when all ended well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"some of: {', '.join(STEPS)} (default: all)")
    parser.add_argument("--skip", action="append", default=[], choices=STEPS, help="leave this step out")
    parser.add_argument("--list", action="store_true", help="say what the steps do")
    own, rest = sys.argv[1:], []
    if "--" in own:
        cut = own.index("--")
        own, rest = own[:cut], own[cut + 1 :]
    arguments = parser.parse_args(own)
    if arguments.list:
        for name, step in STEPS.items():
            print(f"{name:8} {step.__doc__}")
        return 0
    unknown = [name for name in arguments.steps if name not in STEPS]
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}")
    chosen = [name for name in STEPS if name in (arguments.steps or STEPS) and name not in arguments.skip]
    failed = []
    for name in chosen:
        print(f"== {name}: {STEPS[name].__doc__}", flush=True)
        if not STEPS[name](rest):
            failed.append(name)
    if failed:
        print(f"check failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
