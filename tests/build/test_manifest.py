"""plugin.toml: every one of ours is sound and fits ggml, and a malformed one is told with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.build import ROOT, BuildError
from tools.build.config import BuildConfig
from tools.build.plugins import chosen, lacking, manifest_of
from tools.build.table import DOCUMENT, with_table
from whispyx.plugins import manifest, probes
from whispyx.plugins.manifest import ManifestError, Probe

UPSTREAM = ROOT / "vendor" / "ggml"
NAMES = manifest.names(ROOT)

# What the plan of the project asks for.
WANTED = {"cpu", "blas", "vulkan", "rpc", "openvino", "cuda"}
WANTED |= {"hip", "sycl", "metal", "cann", "opencl", "musa", "webgpu"}

GOOD = """
name = "thing"
kind = "GPU"
description = "a thing"
state = "recipe"
proven = "Never."
[build]
cmake = { GGML_THING = "ON" }
targets = ["ggml-thing"]
[[build.probe]]
what = "the compiler of things"
program = "thingc"
debian = "thing-dev"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "thing" / "plugin.toml"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return path


def test_there_is_one_of_every_backend() -> None:
    assert set(NAMES) >= WANTED


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_of_ours_fits_ggml(name: str) -> None:
    backend = manifest_of(name)
    if not (UPSTREAM / "src").is_dir():
        pytest.skip("vendor/ggml is not unpacked here (built from another tree)")
    folders = (UPSTREAM, UPSTREAM / "src", UPSTREAM / "src" / f"ggml-{name}")
    files = [folder / "CMakeLists.txt" for folder in folders]
    text = "".join(path.read_text("utf-8") for path in files if path.is_file())
    for option in backend.build.cmake:
        known = re.search(rf"\b(option|set)\({option}\b", text)
        # A backend without an option() of its own is switched on by the variable that its folder's name makes.
        folder = re.search(rf"ggml_add_backend\({option.removeprefix('GGML_')}\)", text)
        assert known or folder or option.startswith("CMAKE_"), option
    for target in backend.build.targets:
        assert (UPSTREAM / "src" / target / "CMakeLists.txt").is_file(), target


def test_a_sound_manifest_is_read(tmp_path: Path) -> None:
    read = manifest.read(written(tmp_path, GOOD))
    assert (read.name, read.build.targets) == ("thing", ("ggml-thing",))
    assert read.build.cmake == {"GGML_THING": "ON"}
    assert read.build.probes == (Probe("the compiler of things", "program", "thingc", debian="thing-dev"),)
    assert read.run == manifest.Run()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "thing"', 'name = "other"', "the folder is called 'thing'"),
        ('name = "thing"', "", "name must be a text"),
        ('kind = "GPU"', 'kind = "TPU"', "one of CPU, GPU"),
        ('state = "recipe"', 'state = "sure"', "one of run"),
        ("[build]", "[build]\nneeds = []", "unknown entries: needs"),
        ('["ggml-thing"]', '"ggml-thing"', "targets must be a list of texts"),
        ('{ GGML_THING = "ON" }', "{ GGML_THING = true }", "cmake must be a table of texts"),
        ('program = "thingc"', "", "exactly one of program"),
        ('program = "thingc"', 'program = "thingc"\nheader = "thing.h"', "exactly one of program"),
        ('debian = "thing-dev"', "", "how to get"),
        ("[[build.probe]]", "[build.probe]", "probe must be a list of tables"),
        ("[build]", "[build", "cannot be read"),
    ],
)
def test_a_malformed_manifest_is_told_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert GOOD.count(old) == 1
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ManifestError, match=re.escape(told)) as info:
        manifest.read(path)
    assert str(path) in str(info.value)


def test_probes_find_what_is_here_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "thingc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    header = tmp_path / "include" / "thing" / "thing.h"
    header.parent.mkdir(parents=True)
    header.touch()
    monkeypatch.setenv("THING_HOME", str(tmp_path))
    found = [
        Probe("", "program", "python3"),
        Probe("", "program", "thingc", places=("$THING_HOME/bin",)),
        Probe("", "header", "stdio.h"),
        Probe("", "header", "thing/thing.h", places=("$THING_HOME/include",)),
        Probe("", "header", "stdio.h", by="c++"),
        Probe("", "library", "m"),
        Probe("", "library", "libc.so.6"),
        Probe("", "python", "pytest"),
        Probe("", "variable", "THING_HOME"),
    ]
    assert [probe for probe in found if not probes.look_for(probe)] == []
    missing = [
        Probe("", "program", "thingc"),
        Probe("", "program", "thingc", places=("$THING_ROOT/bin", "relative/bin")),
        Probe("", "header", "thing/thing.h"),
        Probe("", "header", "thing/thing.h", by="c++"),
        Probe("", "header", "stdio.h", by="compiler-of-nobody"),
        Probe("", "library", "thing"),
        Probe("", "library", "libthing.so.1"),
        Probe("", "python", "thing.of.nobody"),
        Probe("", "pkgconfig", "thing"),
        Probe("", "platform", "plan9"),
        Probe("", "variable", "THING_ROOT"),
    ]
    assert [probe for probe in missing if probes.look_for(probe)] == []


def test_what_is_missing_is_told_with_the_command_that_brings_it() -> None:
    probe = Probe("the compiler of things", "program", "thingc", debian="thing-dev", pypi="thing", hint="or wait")
    (missing,) = probes.missing([probe])
    assert str(missing) == (
        "The compiler of things (no program thingc on PATH): apt-get install thing-dev, or pip install thing; or wait"
    )
    chosen_by_hand = Probe("", "program", "thingc", unless="THING_COMPILER", hint="x")
    assert probes.missing([chosen_by_hand], {"THING_COMPILER": "/opt/thingc"}) == []


def test_of_all_backends_those_are_built_whose_needs_are_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MUSA_PATH", raising=False)
    chosen.cache_clear()
    built = {backend.name for backend in chosen(BuildConfig(backends=("all",)))}
    assert built >= {"cpu", "blas", "rpc"}
    encoders = {name for name in NAMES if not manifest_of(name).build.targets}
    assert encoders >= {"openvino"} and not encoders & built, "there is nothing to compile"
    said = capsys.readouterr().out
    for name in set(NAMES) - built - encoders:
        assert f"whispyx build: {name} is not built. " in said
        assert lacking(manifest_of(name))


def test_a_backend_that_was_named_and_cannot_be_built_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen.cache_clear()
    if not lacking(manifest_of("musa")):
        pytest.skip("the MUSA SDK is here")
    with pytest.raises(BuildError, match=r"names musa, which cannot be built here.*no program mcc"):
        chosen(BuildConfig(backends=("cpu", "musa")))
    with pytest.raises(BuildError, match="nothing to compile"):
        chosen(BuildConfig(backends=("openvino",)))


def test_the_table_in_the_documents_is_made_from_the_manifests() -> None:
    if not DOCUMENT.is_file():
        pytest.skip("the tests run outside of the repository: no docs here")
    text = DOCUMENT.read_text("utf-8")
    assert with_table(text) == text, "python -m tools.build.table --write brings it up to date"
    with pytest.raises(ValueError, match="must be there"):
        with_table("no marker")
