"""python -m whispyx.plugins"""

from __future__ import annotations

import json
from pathlib import Path

from tests.plugins.toolkit import Compiler, python
from whispyx._core.devices import base_library, ggml_version


def test_the_table_shows_what_was_found_loaded_and_refused_and_why(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, "-DODD_SCORE=0")
    done = python("whispyx.plugins", env={"WHISPYX_BACKEND_PATH": str(tmp_path)}, flags=["-m"])
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert f"ggml {ggml_version()} in {Path(base_library()).resolve()}" in lines
    assert any(line.split()[:3] == ["odd", "-", "refused"] for line in lines)
    assert "  it does not support this machine (its score is 0)" in lines
    assert any(line.startswith("cpu ") and " loaded " in line for line in lines)
    assert any(line.split()[:3] == ["CPU", "CPU", "cpu:0"] for line in lines)
    assert f"  {tmp_path}" in lines


def test_json_holds_the_same(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.odd(tmp_path, "-DODD_API_VERSION=9")
    done = python("whispyx.plugins", "--json", env={"WHISPYX_BACKEND_PATH": str(tmp_path)}, flags=["-m"])
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    assert (shown["usable"], shown["error"], shown["selected"]) == (True, None, None)
    assert shown["ggml_version"] == ggml_version()
    odd = shown["found"][0]
    assert (odd["path"], odd["status"]) == (str(path), "refused")
    assert "version 9" in odd["reason"]
    (device,) = shown["devices"]
    assert (device["name"], device["kind"], device["backend"]) == ("CPU", "CPU", "cpu")
    assert device["memory_total"] > 0
    assert device["features"]["LLAMAFILE"] == "1"


def test_a_selection_that_fails_exits_with_1_and_still_shows_the_table(tmp_path: Path) -> None:
    for environment, flags in (({"WHISPYX_BACKEND": "nothing"}, []), ({}, ["--backend", "nothing"])):
        done = python("whispyx.plugins", *flags, env=environment, flags=["-m"])
        assert done.returncode == 1
        assert "error: " in done.stdout.splitlines()[-1]
        assert "'nothing'" in done.stdout.splitlines()[-1]
        assert any(line.startswith("cpu ") for line in done.stdout.splitlines())
        done = python("whispyx.plugins", *flags, "--json", env=environment, flags=["-m"])
        assert done.returncode == 1
        shown = json.loads(done.stdout)
        assert shown["usable"] is False
        assert "'nothing'" in shown["error"]


def test_a_selection_is_shown_in_the_order_the_scheduler_uses(example_folder: Path) -> None:
    done = python(
        "whispyx.plugins", "--backend", "cpu,example", env={"WHISPYX_BACKEND_PATH": str(example_folder)}, flags=["-m"]
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "selected: Example, CPU"
