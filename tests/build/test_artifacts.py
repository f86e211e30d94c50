"""What a build leaves: libraries that can be moved anywhere, name only ours, and do not tell where they were built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

import whispyx
from tools.build import ROOT
from tools.build.vendor import read_pin

PACKAGE = Path(whispyx.__file__).resolve().parent
NATIVE = PACKAGE / "_native"
BASE = NATIVE / "libwhispyx-ggml-base.so"
LIBRARIES = sorted([*PACKAGE.rglob("*.so"), *PACKAGE.rglob("*.pyd")])
PLUGINS = sorted((NATIVE / "plugins").glob("libggml-*.so"))


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix().split(".")[0]


def dynamic(path: Path) -> dict[str, list[str]]:
    """NEEDED, SONAME and RUNPATH entries of a library, as binutils reads them."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf (binutils) is not installed here")
    text = subprocess.run([readelf, "-dW", path], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {"NEEDED": [], "SONAME": [], "RUNPATH": [], "RPATH": []}
    for tag, value in re.findall(r"\((NEEDED|SONAME|RUNPATH|RPATH)\)\s+[^\[]*\[([^\]]*)\]", text):
        found[tag] += value.split(":") if "PATH" in tag else [value]
    return found


def test_there_are_a_base_library_a_plugin_and_modules() -> None:
    assert BASE.is_file() and PLUGINS and len(LIBRARIES) > len(PLUGINS) + 10


@pytest.mark.parametrize("path", LIBRARIES, ids=named)
def test_no_library_holds_a_path_of_the_build_machine(path: Path) -> None:
    content = path.read_bytes()
    for place in {str(ROOT), tempfile.gettempdir(), os.path.expanduser("~"), sysconfig.get_path("include")}:
        if len(place) > 3:
            # At the start of a path only: a tree in /src is not what "ggml/src/ggml.c" tells.
            found = re.search(rb"(?<![\w.-])" + re.escape(place.encode()) + b"/", content)
            assert found is None, f"{named(path)} holds {place}"


@pytest.mark.parametrize("path", LIBRARIES, ids=named)
def test_libraries_look_for_others_only_beside_themselves(path: Path) -> None:
    entries = dynamic(path)
    depth = len(path.relative_to(PACKAGE).parts) - 1
    ours = {
        BASE.parent: ["$ORIGIN"],
        NATIVE / "plugins": ["$ORIGIN/..", "$ORIGIN"],
    }.get(path.parent, [f"$ORIGIN/{'../' * depth}_native"])
    assert entries["RPATH"] == []
    assert entries["RUNPATH"] in ([], ours)
    if BASE.name in entries["NEEDED"]:
        assert entries["RUNPATH"] == ours


@pytest.mark.parametrize("path", LIBRARIES, ids=named)
def test_the_only_ggml_that_is_named_is_ours(path: Path) -> None:
    entries = dynamic(path)
    assert [name for name in entries["NEEDED"] if "ggml" in name] in ([], [BASE.name])
    assert not [name for name in entries["NEEDED"] if "gomp" in name or "omp" in name], "OpenMP is not used"
    if path == BASE:
        assert entries["SONAME"] == [BASE.name]


@pytest.mark.parametrize("path", PLUGINS, ids=named)
def test_a_plugin_says_which_ggml_it_was_made_for(path: Path) -> None:
    program = (
        "import ctypes, sys\n"
        "version = ctypes.CDLL(sys.argv[1]).whispyx_plugin_ggml_version\n"
        "version.restype = ctypes.c_char_p\n"
        "print(version().decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == read_pin().ggml_version, done.stderr


def test_the_licence_of_ggml_travels_along() -> None:
    text = (NATIVE / "LICENSE.ggml").read_text(encoding="utf-8")
    assert text.startswith("MIT License") and "ggml" in text.lower()


def test_types_travel_along() -> None:
    assert (PACKAGE / "py.typed").is_file()
    for module in ("_core/devices", "_core/mel"):
        assert (PACKAGE / f"{module}.pyi").is_file()


def test_the_version_is_kept_in_one_place() -> None:
    assignment = re.compile(rf"""version\w*(?:: [\w.]+)? = ["']{re.escape(whispyx.__version__)}["']""")
    places = [ROOT / "pyproject.toml", ROOT / "setup.py", *sorted((ROOT / "whispyx").rglob("*.py"))]
    held = [path.relative_to(ROOT).as_posix() for path in places if assignment.search(path.read_text(encoding="utf-8"))]
    assert held == ["whispyx/_version.py"]
