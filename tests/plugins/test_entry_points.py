"""Python packages may bring plugins: entry points in the group whispyx.backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.toolkit import Compiler, ask


def install(folder: Path, module: str, **entries: str) -> str:
    """Make `folder` a place with one installed package whose module has the text `module`; return code that adds it."""
    (folder / "brought.py").write_text(module)
    info = folder / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[whispyx.backends]", *lines, ""]))
    return f"sys.path.append({str(folder)!r})\n"


@pytest.mark.parametrize(
    "module",
    [
        "from pathlib import Path\nplugin = Path(__file__).parent / 'libggml-odd.so'\n",
        "import os\nplugin = [os.path.join(os.path.dirname(__file__), 'libggml-odd.so')]\n",
        "from pathlib import Path\ndef plugin():\n    return (p for p in Path(__file__).parent.glob('libggml-*.so'))\n",
    ],
    ids=["a path", "a list", "a function"],
)
def test_a_package_offers_a_plugin(compiler: Compiler, tmp_path: Path, module: str) -> None:
    path = compiler.odd(tmp_path)
    code = install(tmp_path, module, odd="brought:plugin")
    outcome, records = ask(code + "answer([attempt(), found()])")
    assert outcome["loaded"] == ["odd", "cpu"]
    assert (records[0]["path"], records[0]["source"]) == (str(path), "entry point odd")
    assert ask(code + "answer(attempt('odd'))")["selected"] == ["Odd", "CPU"]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("1 / 0\n", "ZeroDivisionError"),
        ("", "AttributeError"),
        ("plugin = 3\n", "TypeError"),
        ("plugin = [b'/x/libggml-odd.so']\n", "TypeError"),
        ("def plugin():\n    raise SystemError('no card')\n", "no card"),
        ("plugin = 'libggml-odd.so'\n", "absolute paths"),
        ("plugin = '/opt/libggml-other.so'\n", "libggml-odd"),
        ("plugin = '/opt/odd.so'\n", "libggml-odd"),
    ],
)
def test_a_package_that_fails_is_reported_and_is_an_error_when_asked_for(
    tmp_path: Path, module: str, reason: str
) -> None:
    code = install(tmp_path, module, odd="brought:plugin")
    outcome, records = ask(code + "answer([attempt(), found()])")
    assert outcome == {"selected": None, "loaded": ["cpu"]}
    (record,) = [r for r in records if r["source"] == "entry point odd"]
    assert record["status"] == "refused"
    assert reason in record["reason"]
    outcome = ask(code + "answer(attempt('odd'))")
    assert "BackendError" in outcome["kinds"]
    assert reason in outcome["error"]
    assert "brought:plugin" in outcome["error"]


def test_a_package_that_was_not_asked_for_is_not_imported(tmp_path: Path) -> None:
    code = install(tmp_path, "raise SystemExit('imported')\n", odd="brought:plugin")
    assert ask(code + "answer(attempt('cpu'))")["selected"] == ["CPU"]


def test_the_better_score_wins_between_a_package_and_a_folder(compiler: Compiler, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "folder", tmp_path / "package"
    compiler.odd(ours, "-DODD_SCORE=3")
    better = compiler.odd(theirs, "-DODD_SCORE=4", tag="new")
    code = install(theirs, f"plugin = {str(better)!r}\n", odd="brought:plugin")
    _, records = ask(code + "answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(ours)})
    assert {r["file"]: (r["status"], r["score"]) for r in records if r["name"] == "odd"} == {
        "libggml-odd.so": ("outscored", 3),
        "libggml-odd-new.so": ("loaded", 4),
    }
