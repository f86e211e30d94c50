"""BuildConfig reads every variable once, checks it, prints itself and explains itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from tools.build import ROOT, BuildError
from tools.build.config import VARIABLES, BuildConfig, explain


def test_without_variables_the_defaults_hold() -> None:
    config = BuildConfig.from_env({})
    assert config.ggml_source is None
    assert config.backends == ("cpu",)
    assert config.cpu_variants == ("native",)
    assert config.jobs >= 1
    assert not config.offline
    assert config.build_type == "release" and not config.debug


def test_every_variable_reaches_its_field(tmp_path: Path) -> None:
    config = BuildConfig.from_env(
        {
            "WHISPYX_GGML_SOURCE": str(tmp_path),
            "WHISPYX_BUILD_BACKENDS": "cpu, blas",
            "WHISPYX_CPU_VARIANTS": "x64,haswell,",
            "WHISPYX_BUILD_JOBS": "3",
            "WHISPYX_BUILD_OFFLINE": "1",
            "WHISPYX_BUILD_TYPE": "sanitize",
        }
    )
    assert config == BuildConfig(tmp_path.resolve(), ("cpu", "blas"), ("x64", "haswell"), 3, True, "sanitize")
    assert config.debug


def test_a_relative_source_folder_counts_from_the_top_of_the_tree() -> None:
    assert BuildConfig.from_env({"WHISPYX_GGML_SOURCE": "elsewhere/ggml"}).ggml_source == ROOT / "elsewhere" / "ggml"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WHISPYX_GGML_SOURCE", ""),
        ("WHISPYX_GGML_SOURCE", "  "),
        ("WHISPYX_BUILD_BACKENDS", ""),
        ("WHISPYX_BUILD_BACKENDS", " , "),
        ("WHISPYX_CPU_VARIANTS", ""),
        ("WHISPYX_BUILD_JOBS", "0"),
        ("WHISPYX_BUILD_JOBS", "-1"),
        ("WHISPYX_BUILD_JOBS", "two"),
        ("WHISPYX_BUILD_JOBS", "²"),
        ("WHISPYX_BUILD_OFFLINE", "yes"),
        ("WHISPYX_BUILD_OFFLINE", ""),
        ("WHISPYX_BUILD_TYPE", "fast"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BuildError, match=name):
        BuildConfig.from_env({name: value})


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        BuildConfig().jobs = 2  # type: ignore[misc]


def test_it_prints_every_field_with_the_variable_that_sets_it() -> None:
    text = str(BuildConfig(cpu_variants=("x64", "zen4"), jobs=7))
    assert [line.split()[0] for line in text.splitlines()] == [field.name for field in fields(BuildConfig)]
    assert "x64,zen4" in text and "7" in text
    for variable in VARIABLES:
        assert variable.name in text


def test_the_explanation_has_every_variable_its_default_and_its_meaning() -> None:
    text = explain()
    for variable in VARIABLES:
        assert f"{variable.name}  (default: {variable.default})\n    {variable.meaning}" in text


def test_build_variables_are_read_nowhere_else() -> None:
    names = {variable.name for variable in VARIABLES}
    for path in [ROOT / "setup.py", *(ROOT / "tools" / "build").rglob("*.py"), *(ROOT / "whispyx").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        read = {name for name in names for how in ("environ[", "environ.get(", "getenv(") if f'{how}"{name}' in text}
        assert not read, f"{path.relative_to(ROOT)} reads {read}"


def command(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.build", *arguments],
        cwd=ROOT,
        env={"PATH": "", **env},
        capture_output=True,
        text=True,
    )


def test_the_command_explains_and_shows_without_building() -> None:
    assert command("--explain").stdout.strip() == explain().strip()
    shown = command("--show", WHISPYX_BUILD_JOBS="5")
    assert "jobs          = 5" in shown.stdout and "plugins" in shown.stdout


def test_the_command_refuses_a_bad_value_in_one_paragraph() -> None:
    done = command("--show", WHISPYX_BUILD_JOBS="many")
    assert done.returncode == 1
    assert "WHISPYX_BUILD_JOBS" in done.stderr and "Traceback" not in done.stderr
    assert "\n\n" not in done.stderr.strip()
