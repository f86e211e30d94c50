"""Applies unified diffs exactly: a machine that builds us need not have `patch` or `git`."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

__all__ = ["PatchError", "apply_patch"]

_HUNK: Final = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_FILE: Final = "/dev/null"


class PatchError(Exception):
    """The diff is malformed, or the tree is not the one it was made from."""


@dataclass
class _FilePatch:
    old: str
    new: str
    hunks: list[tuple[int, list[str]]] = field(default_factory=list)  # old lines before it, lines with their marks


def apply_patch(diff: str, tree: Path) -> None:
    """Apply `diff` to the files under `tree`: changed, new and removed files, one leading path part dropped.

    Every line must match at its stated place. All results are computed before the first file is written, so that a
    diff that does not fit changes nothing.

    Raises
    ------
    PatchError
        With the file and line that differ.
    """
    results: dict[Path, bytes | None] = {}
    for change in _parse(diff):
        old, new = _resolve(change.old, tree), _resolve(change.new, tree)
        target = new or old
        if target is None:
            raise PatchError("a diff names neither an old nor a new file")
        before = b"" if old is None else results[old] if old in results else _read(old, change.old)
        if before is None:
            raise PatchError(f"{change.old} was removed by an earlier part of the patch")
        if old is None and (new in results or target.exists()):
            raise PatchError(f"{change.new} exists already")
        after = _apply(before.decode("utf-8", "surrogateescape"), change)
        if old is not None and old != target:
            results[old] = None
        results[target] = None if new is None else after.encode("utf-8", "surrogateescape")
    if not results:
        raise PatchError("it holds no change")
    for path, content in results.items():
        if content is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _lines(text: str) -> list[str]:
    return list(io.StringIO(text, newline="\n"))  # str.splitlines would also split at form feeds and the like


def _parse(diff: str) -> list[_FilePatch]:
    changes: list[_FilePatch] = []
    lines = _lines(diff)
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ "):
            changes.append(_FilePatch(_name(line), _name(lines[index + 1])))
            index += 2
        elif (found := _HUNK.match(line)) is not None:
            if not changes:
                raise PatchError("a hunk comes before the name of its file")
            n_old, n_new = (int(found[group]) if found[group] else 1 for group in (2, 4))
            body, index = _hunk(lines, index + 1, n_old, n_new)
            # A hunk that only adds names the line it comes after, any other its first line.
            changes[-1].hunks.append((int(found[1]) - (n_old > 0), body))
        else:
            index += 1  # words between the parts: why the patch exists, 'diff --git', 'index'
    return changes


def _name(line: str) -> str:
    return line[4:].rstrip("\r\n").split("\t")[0]


def _hunk(lines: list[str], index: int, n_old: int, n_new: int) -> tuple[list[str], int]:
    body: list[str] = []
    while n_old > 0 or n_new > 0 or (index < len(lines) and lines[index].startswith("\\")):
        line = lines[index] if index < len(lines) else ""
        mark = line[:1]
        if mark == "\\":  # "no newline at the end of the file" belongs to the line before
            body[-1] = body[-1].rstrip("\n")
        elif mark in (" ", "-", "+", "\n"):
            n_old -= mark != "+"
            n_new -= mark != "-"
            body.append(" " + line if mark == "\n" else line)
        else:
            raise PatchError("a hunk is shorter than its heading says")
        index += 1
    return body, index


def _resolve(name: str, tree: Path) -> Path | None:
    if name == _NO_FILE:
        return None
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or parts[0] == "/" or ".." in parts:
        raise PatchError(f"'{name}' is not a path of the form a/folder/file")
    return tree.joinpath(*parts[1:])


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PatchError(f"{name} cannot be read: {error.strerror}") from error


def _apply(text: str, change: _FilePatch) -> str:
    before = _lines(text)
    after: list[str] = []
    position = 0
    for start, body in change.hunks:
        if start < position or start > len(before):
            raise PatchError(f"{change.old} has no line {start + 1}, or an earlier change covers it")
        after += before[position:start]
        position = start
        for line in body:
            mark, content = line[0], line[1:]
            if mark == "+":
                after.append(content)
                continue
            if position >= len(before) or before[position] != content:
                raise PatchError(f"{change.old} differs at line {position + 1}: expected {content.strip()!r}")
            if mark == " ":
                after.append(content)
            position += 1
    return "".join(after + before[position:])
