"""What the user rules out: WHISPYX_BACKEND_EXCLUDE, WHISPYX_CPU_VARIANT; the kinds of device; the user's own folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugins.toolkit import Compiler, ask, python
from whispyx._core.devices import ggml_version
from whispyx.plugins.discovery import package_folder

GPU = "-DODD_KIND=GGML_BACKEND_DEVICE_TYPE_GPU"
IGPU = "-DODD_KIND=GGML_BACKEND_DEVICE_TYPE_IGPU"
VARIANTS = sorted(path.stem.removeprefix("libggml-cpu-") for path in package_folder().glob("libggml-cpu-*.so"))


def test_an_excluded_plugin_is_never_opened(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.library(tmp_path / "libggml-bad.so", [Path(__file__).parent / "sources" / "killer.c"])
    for entry in ("bad", "BAD", " bad ,", str(path), f"vulkan,{path}"):
        environment = {"WHISPYX_BACKEND_PATH": str(tmp_path), "WHISPYX_BACKEND_EXCLUDE": entry}
        outcome, records = ask("answer([attempt(), found()])", env=environment)
        assert outcome == {"selected": None, "loaded": ["cpu"]}, entry
        (record,) = [r for r in records if r["name"] == "bad"]
        assert (record["status"], record["reason"]) == ("excluded", "WHISPYX_BACKEND_EXCLUDE rules it out")
    # The library does what it says: without the variable the process is gone.
    done = python("import whispyx.plugins as p; p.load()", env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert done.returncode == 77


def test_asking_for_what_is_excluded_is_an_error_that_names_the_variable(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.odd(tmp_path)
    environment = {"WHISPYX_BACKEND_PATH": str(tmp_path), "WHISPYX_BACKEND_EXCLUDE": "odd"}
    for wanted in ("odd", str(path)):
        outcome = ask("answer(attempt(sys.argv[1]))", wanted, env=environment)
        assert "BackendError" in outcome["kinds"]
        assert str(path) in outcome["error"]
        assert "WHISPYX_BACKEND_EXCLUDE" in outcome["error"]


@pytest.mark.parametrize("value", ["a b", "plugins/libggml-x.so", "vulkan;cuda", "vulkan:0"])
def test_a_malformed_exclusion_is_an_error(value: str) -> None:
    outcome = ask("answer(attempt())", env={"WHISPYX_BACKEND_EXCLUDE": value})
    assert "ParamsError" in outcome["kinds"]
    assert "WHISPYX_BACKEND_EXCLUDE" in outcome["error"]


def test_without_any_cpu_the_error_says_that_it_is_excluded() -> None:
    outcome = ask(
        "answer(attempt('cpu'))\n", env={"WHISPYX_BACKEND_EXCLUDE": "cpu", "WHISPYX_BACKEND": "", "LC_ALL": "C"}
    )
    assert "no CPU plugin could be loaded" in outcome["error"]
    assert "WHISPYX_BACKEND_EXCLUDE" in outcome["error"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_cpu_variant_can_be_forced(variant: str) -> None:
    code = "outcome = attempt()\nanswer([outcome, os.path.basename(table.cpu_device().plugin_path), found()])"
    outcome, file, records = ask(code, env={"WHISPYX_CPU_VARIANT": variant.upper()})
    assert outcome == {"selected": None, "loaded": ["cpu"]}
    assert file == f"libggml-cpu-{variant}.so"
    (loaded,) = [r for r in records if r["status"] == "loaded"]
    assert loaded["score"] >= 1


def test_excluding_a_variant_leaves_the_others() -> None:
    best = ask("attempt()\nanswer(table.cpu_device().plugin_path)")
    tag = Path(best).stem.removeprefix("libggml-cpu-")
    other = ask("attempt()\nanswer(table.cpu_device().plugin_path)", env={"WHISPYX_BACKEND_EXCLUDE": f"cpu-{tag}"})
    assert other != best
    assert Path(other).stem.removeprefix("libggml-cpu-") in VARIANTS


def test_a_cpu_variant_that_is_not_there_is_an_error_that_lists_those_that_are() -> None:
    for selection in ("", "cpu"):
        outcome = ask("answer(attempt())", env={"WHISPYX_CPU_VARIANT": "vax", "WHISPYX_BACKEND": selection})
        assert {"BackendNotFoundError"} <= set(outcome["kinds"])
        for variant in VARIANTS:
            assert variant in outcome["error"]


def test_a_cpu_variant_for_another_machine_is_an_error(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, "-DODD_SCORE=0", name="cpu", tag="vax")
    outcome = ask("answer(attempt())", env={"WHISPYX_CPU_VARIANT": "vax", "WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert "BackendUnsupportedError" in outcome["kinds"]
    assert "score is 0" in outcome["error"]


def test_a_malformed_variant_is_an_error() -> None:
    assert "ParamsError" in ask("answer(attempt())", env={"WHISPYX_CPU_VARIANT": "../x64"})["kinds"]


def test_naming_another_variant_later_is_an_error_and_naming_a_file_counts_more() -> None:
    code = """
first = attempt()
os.environ["WHISPYX_CPU_VARIANT"] = sys.argv[1]
answer([attempt(), attempt(table.cpu_device().plugin_path)])
"""
    best = Path(ask("attempt()\nanswer(table.cpu_device().plugin_path)")).stem.removeprefix("libggml-cpu-")
    other = next(variant for variant in VARIANTS if variant != best)
    later, by_path = ask(code, other)
    assert "before the first model is made" in later["error"]
    assert by_path == {"selected": ["CPU"], "loaded": ["cpu"]}


def test_ruling_out_what_is_loaded_already_is_an_error(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path)
    code = """
first = attempt()
os.environ["WHISPYX_BACKEND_EXCLUDE"] = "odd"
later = [attempt(), attempt("odd"), attempt("cpu")]
del os.environ["WHISPYX_BACKEND_EXCLUDE"]
answer([first, later, attempt()])
"""
    first, later, again = ask(code, env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert first["loaded"] == again["loaded"] == ["odd", "cpu"]
    for outcome in later:
        assert "BackendError" in outcome["kinds"]
        assert "before the first model is made" in outcome["error"]


def test_a_device_may_be_named_before_its_plugin_is_loaded(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Odd1"')
    environment = {"WHISPYX_BACKEND_PATH": str(tmp_path), "WHISPYX_BACKEND": "odd1"}
    assert ask("answer(attempt())", env=environment)["selected"] == ["Odd1", "CPU"]
    assert "no device of that name" in ask("answer(attempt('odd2'))", env=environment)["error"]


def test_a_file_that_was_named_by_mistake_is_not_a_fallback_later(tmp_path: Path) -> None:
    code = "first = attempt(sys.argv[1])\nattempt()\nanswer([first, [str(f) for f in plugins.report().fallbacks]])"
    first, fallbacks = ask(code, str(tmp_path / "libggml-x.so"))
    assert "there is no such file" in first["error"]
    assert fallbacks == []


def test_a_model_without_any_cpu_plugin_says_what_became_of_each() -> None:
    code = """
import whispyx
from whispyx import capi
capi.whisper_log_set(lambda level, text, data: None)
try:
    whispyx.Model("tiny.en")
except whispyx.BackendNotFoundError as error:
    told = str(error)
answer([told, capi.whisper_init_from_file("x.bin") is None, capi.whisper_print_system_info()])
"""
    told, refused, info = ask(code, env={"WHISPYX_BACKEND_EXCLUDE": "cpu"})
    assert "WHISPYX_BACKEND_EXCLUDE rules it out" in told
    assert refused
    assert "EXCLUDED : " in info
    info = ask("from whispyx import capi\nanswer(capi.whisper_print_system_info())", env={"WHISPYX_BACKEND": "vulcan"})
    assert "ERROR : WHISPYX_BACKEND asks for 'vulcan'" in info


def test_a_kind_means_the_best_device_of_that_kind_whoever_offers_it(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Small"', IGPU, name="aaa")
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Big"', GPU, name="bbb")
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Helper"', name="ccc")
    environment = {"WHISPYX_BACKEND_PATH": str(tmp_path)}
    wanted = ["gpu", "gpu:1", "igpu", "accel", "accel,GPU:0", "gpu:2"]
    outcomes = ask(f"answer([attempt(text) for text in {wanted!r}])", env=environment)
    assert [outcome.get("selected") for outcome in outcomes[:5]] == [
        ["Big", "CPU"],
        ["Small", "CPU"],
        ["Small", "CPU"],
        ["Helper", "CPU"],
        ["Helper", "Big", "CPU"],
    ]
    assert "Big, Small" in outcomes[5]["error"]


def test_only_a_gpu_where_there_is_none_names_what_was_looked_at(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, "-DODD_INIT_NULL", GPU, name="vulkan")
    outcome = ask("answer(attempt())", env={"WHISPYX_BACKEND": "gpu", "WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert "BackendNotFoundError" in outcome["kinds"]
    error = outcome["error"]
    assert "WHISPYX_BACKEND asks for 'gpu'" in error
    assert "plugin 'vulkan' is refused: it refused to start" in error
    assert "CPU of plugin 'cpu' is of kind CPU" in error
    assert str(tmp_path) in error


def test_the_users_own_folder_is_searched_before_the_package(compiler: Compiler, tmp_path: Path) -> None:
    home = tmp_path / "größe"
    folder = home / f"ggml-{ggml_version()}"
    compiler.odd(folder)
    compiler.odd(home / "ggml-0.0.1", name="old")
    outcome, records = ask("answer([attempt(), found()])", env={"WHISPYX_PLUGIN_HOME": str(home)})
    assert outcome["loaded"] == ["odd", "cpu"]
    assert (records[0]["name"], records[0]["source"]) == ("odd", "user")
    outcome = ask("answer(attempt())", env={"WHISPYX_PLUGIN_HOME": "plugins"})
    assert "ParamsError" in outcome["kinds"]
    shutil.rmtree(home)
    assert ask("answer(attempt())", env={"WHISPYX_PLUGIN_HOME": str(home)})["loaded"] == ["cpu"]
