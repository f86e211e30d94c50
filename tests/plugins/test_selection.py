"""What WHISPYX_BACKEND and the argument may say, and what each means."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePath
from typing import Any

import pytest

from tests.plugins.toolkit import Compiler, ask, python
from whispyx.errors import ParamsError
from whispyx.plugins.discovery import file_candidate, parse_selection


def wishes(value: Any) -> list[tuple[str, int, str | None]]:
    return [(wish.name, wish.index, wish.path) for wish in parse_selection(value).wishes]


def test_a_string_holds_names_devices_and_paths_separated_by_commas() -> None:
    path = "/opt/plugins/libggml-hip-gfx90a.so"
    assert wishes(f"vulkan:1, BLAS ,{path},cpu") == [
        ("vulkan", 1, None),
        ("blas", 0, None),
        ("hip", 0, path),
        ("cpu", 0, None),
    ]


def test_a_sequence_has_one_entry_per_item() -> None:
    path = PurePath("/opt/a,b/libggml-x.so")
    assert wishes(["blas", path]) == [("blas", 0, None), ("x", 0, str(path))]
    assert wishes(path) == [("x", 0, str(path))]


def test_a_leading_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert wishes("~/libggml-x.so") == [("x", 0, "/home/somebody/libggml-x.so")]


@pytest.mark.parametrize(
    "value", ["libggml-x.so", "./libggml-x.so", "plugins/libggml-x.so", "~nobody-has-this-name/x.so"]
)
def test_a_relative_path_is_an_error_that_asks_for_an_absolute_one(value: str) -> None:
    with pytest.raises(ParamsError, match="write the whole path"):
        parse_selection(value)


@pytest.mark.parametrize("value", ["", "  ", [], ["", " "], ","])
def test_an_empty_argument_is_an_error_that_says_what_to_do(value: Any) -> None:
    with pytest.raises(ParamsError, match=r"empty; name a plugin"):
        parse_selection(value)


@pytest.mark.parametrize("value", ["cpu,,blas", "cpu,", ["cpu", ""]])
def test_an_empty_entry_is_an_error(value: Any) -> None:
    with pytest.raises(ParamsError, match="empty entry"):
        parse_selection(value)


@pytest.mark.parametrize("value", ["cpu:", "cpu:one", "cpu:-1", "cpu:0:0", "cp u", "cpu;blas", "cpu:99999", "ünïcode"])
def test_a_malformed_entry_is_an_error_that_quotes_it(value: str) -> None:
    with pytest.raises(ParamsError, match="an entry is a plugin"):
        parse_selection(value)


@pytest.mark.parametrize("value", ["/opt\0/libggml-x.so", "cpu\0", ["~/\0.so"]])
def test_a_null_character_is_an_error(value: Any) -> None:
    with pytest.raises(ParamsError, match="null character"):
        parse_selection(value)


@pytest.mark.parametrize("value", [b"cpu", bytearray(b"cpu"), 3, {"cpu"}, {"cpu": 1}, [b"cpu"], [None], object()])
def test_other_types_are_an_error(value: Any) -> None:
    with pytest.raises(ParamsError, match=r"give a str|every entry is a str"):
        parse_selection(value)


@pytest.mark.parametrize(
    "name", ["libvulkan.so", "libggml-.so", "libggml-base.so", "libggml-cpu.so.1", "ggml-cpu.so", "x"]
)
def test_a_file_that_is_not_called_like_a_plugin_is_an_error_that_says_how(name: str) -> None:
    with pytest.raises(ParamsError, match="libggml-NAME"):
        file_candidate(f"/opt/{name}", "backend")


@pytest.mark.parametrize(
    ("file", "name", "tag"),
    [
        ("libggml-cpu.so", "cpu", ""),
        ("libggml-cpu-zen4.so", "cpu", "zen4"),
        ("libggml-CPU-armv8.2_1.so", "cpu", "armv8.2_1"),
        ("libggml-my_npu-a-b.so", "my_npu", "a-b"),
    ],
)
def test_name_and_tag_come_from_the_file_name(file: str, name: str, tag: str) -> None:
    candidate = file_candidate(f"/opt/{file}", "backend")
    assert (candidate.name, candidate.tag) == (name, tag)


def test_unset_and_blank_variables_mean_everything_that_works() -> None:
    for environment in ({}, {"WHISPYX_BACKEND": ""}, {"WHISPYX_BACKEND": "  "}, {"WHISPYX_BACKEND_PATH": ""}):
        outcome = ask("answer([attempt(), plugins.resolve()])", env=environment)
        assert outcome == [{"selected": None, "loaded": ["cpu"]}, None], environment


def test_an_unknown_name_lists_what_there_is(tmp_path: Path) -> None:
    outcome = ask("answer(attempt())", env={"WHISPYX_BACKEND": "vulcan", "WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert {"BackendNotFoundError", "LookupError"} <= set(outcome["kinds"])
    assert "WHISPYX_BACKEND asks for 'vulcan'" in outcome["error"]
    assert "plugins found: cpu" in outcome["error"]
    assert str(tmp_path) in outcome["error"]


def test_a_name_that_we_know_of_says_how_to_get_it() -> None:
    outcomes = ask("answer([attempt('vulkan'), attempt('openvino'), attempt('vulcan')])")
    assert "`whispyx backends build vulkan` makes it" in outcomes[0]["error"]
    assert "WHISPYX_ENCODER" in outcomes[1]["error"]
    assert "backends build" not in outcomes[2]["error"]


def test_a_variant_that_is_not_installed_is_named_with_those_that_are() -> None:
    outcomes = ask("answer([attempt('cpu'), attempt()])", env={"WHISPYX_CPU_VARIANT": "nosuch"})
    for outcome in outcomes:
        assert "'nosuch', which is not installed; there are: " in outcome["error"]
    done = python("whispyx", "backends", "test", "cpu-nosuch", flags=["-m"])
    assert done.returncode == 4
    assert "the CPU variant 'nosuch' is not installed; there are: cpu-" in done.stderr


def test_the_command_that_tests_says_how_to_get_a_backend_that_we_know_of() -> None:
    done = python("whispyx", "backends", "test", "cuda", "openvino", flags=["-m"])
    assert done.returncode == 4
    assert "`whispyx backends build cuda` makes it" in done.stderr
    assert "openvino computes Whisper's encoder alone" in done.stderr


def test_a_device_number_that_does_not_exist_lists_those_that_do() -> None:
    outcome = ask("answer(attempt('cpu:1'))")
    assert "BackendNotFoundError" in outcome["kinds"]
    assert "cpu:0 (CPU)" in outcome["error"]


def test_a_selection_loads_nothing_else_but_the_cpu(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, name="aaa")
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Bee"', name="bbb")
    environment = {"WHISPYX_BACKEND_PATH": str(tmp_path)}
    outcome, records = ask("answer([attempt('bbb'), found()])", env=environment)
    assert outcome == {"selected": ["Bee", "CPU"], "loaded": ["bbb", "cpu"]}
    (unused,) = [r for r in records if r["name"] == "aaa"]
    assert (unused["status"], unused["reason"]) == ("unused", "it was not asked for")
    # A later selection loads what is missing; the argument counts more than the variable.
    later = ask(
        "attempt()\nanswer([attempt('aaa'), attempt(['aaa', 'bbb']), attempt()])",
        env={**environment, "WHISPYX_BACKEND": "bbb"},
    )
    assert [outcome["selected"] for outcome in later] == [["Odd", "CPU"], ["Odd", "Bee", "CPU"], ["Bee", "CPU"]]


def test_a_device_that_is_known_may_be_called_by_its_own_name(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Bee0"', name="bbb")
    outcome = ask("attempt()\nanswer(attempt('bee0'))", env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert outcome["selected"] == ["Bee0", "CPU"]


def test_a_failed_selection_leaves_the_registry_usable() -> None:
    outcome = ask("answer([attempt('nothing'), attempt('cpu'), attempt()])")
    assert "BackendNotFoundError" in outcome[0]["kinds"]
    assert outcome[1]["selected"] == ["CPU"]
    assert outcome[2] == {"selected": None, "loaded": ["cpu"]}


def test_the_working_directory_is_never_searched(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path)
    code = f"os.chdir({str(tmp_path)!r})\nanswer([attempt(), attempt('odd'), attempt('./libggml-odd.so')])"
    for environment in ({}, {"WHISPYX_BACKEND_PATH": os.pathsep}, {"LD_LIBRARY_PATH": str(tmp_path)}):
        everything, by_name, by_path = ask(code, env=environment)
        assert everything["loaded"] == ["cpu"]
        assert "BackendNotFoundError" in by_name["kinds"]
        assert "ParamsError" in by_path["kinds"]


def test_a_relative_folder_is_an_error_and_a_missing_one_is_reported(tmp_path: Path) -> None:
    outcome = ask("answer(attempt())", env={"WHISPYX_BACKEND_PATH": "plugins"})
    assert "ParamsError" in outcome["kinds"]
    assert "'plugins'" in outcome["error"]
    missing = str(tmp_path / "missing")
    outcome, records = ask("answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": missing})
    assert outcome["loaded"] == ["cpu"]
    (record,) = [r for r in records if r["path"] == missing]
    assert record["status"] == "refused"
    outcome = ask("answer(attempt('odd'))", env={"WHISPYX_BACKEND_PATH": missing})
    assert f"not searched: {missing}" in outcome["error"]


def test_extra_folders_may_replace_the_cpu_plugin_by_path(tmp_path: Path) -> None:
    original = ask("attempt()\nanswer(table.cpu_device().plugin_path)")
    copy = shutil.copy(original, tmp_path / "libggml-cpu-mine.so")
    outcome = ask("answer([attempt(sys.argv[1]), table.cpu_device().plugin_path])", str(copy))
    assert outcome == [{"selected": ["CPU"], "loaded": ["cpu"]}, str(copy)]


def test_a_path_need_not_be_utf_8(compiler: Compiler, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 \xff")
    compiler.odd(folder)
    environment = {"WHISPYX_BACKEND_PATH": str(folder)}
    assert ask("answer(attempt('odd'))", env=environment)["selected"] == ["Odd", "CPU"]
    for variable in ({}, {"PYTHONIOENCODING": "ascii"}):
        done = python("whispyx.plugins", env={**environment, **variable}, flags=["-m"])
        assert (done.returncode, done.stderr) == (0, "")
        assert "\\udcff" in done.stdout


def test_many_threads_may_load_at_once(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path)
    code = """
import threading
barrier, outcomes = threading.Barrier(8), []
def run():
    barrier.wait()
    outcomes.append(attempt())
threads = [threading.Thread(target=run) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
answer([outcomes, len(table.devices())])
"""
    outcomes, count = ask(code, env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert outcomes == [{"selected": None, "loaded": ["odd", "cpu"]}] * 8
    assert count == 2


def test_nothing_is_loaded_by_importing() -> None:
    assert ask("answer([found(), len(table.devices())])") == [[], 0]
