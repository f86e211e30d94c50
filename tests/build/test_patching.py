"""Patches fit exactly or change nothing. Diffs come from difflib, so the reader is checked against another writer."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.build.patching import PatchError, apply_patch


def diff(before: list[str], after: list[str], name: str = "src/file.c", context: int = 3) -> str:
    """A unified diff of two lists of lines that all end in a newline."""
    return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=context))


LINES = st.lists(
    st.sampled_from(["\n", "a\n", "b\n", "- c\n", "+ d\n", "--- e\n", "@@ f\n", "\x0cg\n", "é\n"]), max_size=12
)


@settings(max_examples=200, deadline=None)
@given(before=LINES, after=LINES, context=st.integers(0, 3))
def test_applying_a_diff_gives_the_new_text(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], context: int
) -> None:
    if before == after:
        return  # no diff
    folder = tmp_path_factory.mktemp("tree")
    path = folder / "src" / "file.c"
    path.parent.mkdir()
    path.write_bytes("".join(before).encode())
    apply_patch(diff(before, after, context=context), folder)
    assert path.read_bytes() == "".join(after).encode()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.c").write_text("1\n2\n3\n4\n5\n", encoding="utf-8")
    (tmp_path / "src" / "two.c").write_text("a\nb\n", encoding="utf-8")
    return tmp_path


def contents(tree: Path) -> dict[str, str]:
    return {path.relative_to(tree).as_posix(): path.read_text() for path in sorted(tree.rglob("*")) if path.is_file()}


def test_words_before_the_diff_are_left_out(tree: Path) -> None:
    text = "Why: the kernel asks for it.\nReported upstream.\n\n" + diff(["a\n", "b\n"], ["a\n", "c\n"], "src/two.c")
    apply_patch(text, tree)
    assert contents(tree)["src/two.c"] == "a\nc\n"


def test_one_patch_changes_adds_and_removes_files(tree: Path) -> None:
    added = "--- /dev/null\n+++ b/new/three.c\n@@ -0,0 +1,2 @@\n+x\n+y\n"
    removed = "--- a/src/two.c\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
    changed = diff(["1\n", "2\n", "3\n", "4\n", "5\n"], ["1\n", "5\n"], "src/one.c")
    apply_patch(changed + added + removed, tree)
    assert contents(tree) == {"src/one.c": "1\n5\n", "new/three.c": "x\ny\n"}


def test_a_missing_last_newline_is_kept_apart(tree: Path) -> None:
    (tree / "src" / "one.c").write_text("1\n2", encoding="utf-8")
    text = "--- a/src/one.c\n+++ b/src/one.c\n@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+3\n"
    apply_patch(text, tree)
    assert contents(tree)["src/one.c"] == "1\n3\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--- a/src/two.c\n+++ b/src/two.c\n@@ -1,2 +1,2 @@\n a\n-x\n+c\n", "differs at line 2: expected 'x'"),
        ("--- a/src/two.c\n+++ b/src/two.c\n@@ -9,1 +9,1 @@\n-a\n+c\n", "has no line 9"),
        ("--- a/src/none.c\n+++ b/src/none.c\n@@ -1,1 +1,1 @@\n-a\n+c\n", "none.c cannot be read"),
        ("--- a/src/two.c\n+++ b/src/two.c\n@@ -1,2 +1,2 @@\n a\n", "shorter than its heading"),
        ("--- /dev/null\n+++ b/src/two.c\n@@ -0,0 +1,1 @@\n+x\n", "exists already"),
        ("--- a/../two.c\n+++ b/../two.c\n@@ -1,1 +1,1 @@\n-a\n+c\n", "not a path"),
        ("--- /src/two.c\n+++ /src/two.c\n@@ -1,1 +1,1 @@\n-a\n+c\n", "not a path"),
        ("@@ -1,1 +1,1 @@\n-a\n+c\n", "before the name of its file"),
        ("only words\n", "no change"),
        ("", "no change"),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing_and_says_where(tree: Path, text: str, says: str) -> None:
    before = contents(tree)
    fits = diff(["1\n", "2\n", "3\n", "4\n", "5\n"], ["1\n", "2\n", "3\n", "4\n"], "src/one.c")
    whole = fits + text if text.startswith("---") else text
    with pytest.raises(PatchError, match=says):
        apply_patch(whole, tree)
    assert contents(tree) == before


def test_a_path_through_the_parent_folder_is_refused(tree: Path) -> None:
    outside = tree.parent / "outside.c"
    with pytest.raises(PatchError, match="not a path"):
        apply_patch("--- /dev/null\n+++ b/../outside.c\n@@ -0,0 +1,1 @@\n+x\n", tree)
    assert not outside.exists()
