"""whispyx doctor with plugins that crash, hang, leave, lie or refuse, and with nothing wrong at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.toolkit import SOURCES, Compiler, python
from whispyx.plugins import cases, checkup, variables
from whispyx.plugins.advice import VARIABLES, advice, in_force
from whispyx.plugins.doctor import DeviceCheck, Diagnosis, Examination, Program

ROOT = Path(__file__).resolve().parents[2]
SECONDS = "15"  # for an answer: plugins that hang cost this time, sound ones need a small part of it


@pytest.fixture(scope="module")
def patient(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiler.library(tmp_path_factory.mktemp("patient") / "libggml-patient.so", [SOURCES / "patient.c"])


@dataclass
class Answer:
    code: int
    words: dict[str, Any]

    def plugin(self, label: str) -> dict[str, Any]:
        (found,) = [p for p in self.words["plugins"] if label in (p["name"], f"{p['name']}-{p['tag']}", p["path"])]
        return found

    @property
    def advice(self) -> str:
        return "\n".join(self.words["advice"])


def doctor(*folders: Path, **variables: str) -> Answer:
    env = {"WHISPYX_BACKEND_PATH": os.pathsep.join(map(str, folders)), **variables}
    done = python("whispyx", "doctor", "--json", "--timeout", SECONDS, flags=["-m"], env=env)
    assert done.stdout, done.stderr
    return Answer(done.returncode, json.loads(done.stdout))


def test_the_jobs_are_cases_of_many_kinds() -> None:
    table = {case.name: case for case in cases.cases()}
    assert len({table[name].op for name in checkup.JOBS}) >= 10
    assert len({table[name].type for name in checkup.JOBS}) >= 4


def test_a_sound_installation_has_nothing_to_do(example_folder: Path) -> None:
    answer = doctor(example_folder)
    assert answer.code == 0, answer.words
    assert answer.words["ok"] is True
    assert answer.words["advice"] == []
    best = max((p for p in answer.words["plugins"] if p["name"] == "cpu"), key=lambda p: p["score"])
    assert best["status"] == "sound"
    (device,) = best["devices"]
    assert device["right"] == len(checkup.JOBS)
    assert 0 < device["worst"] <= 1
    assert device["memory_total"] > 0
    example = answer.plugin("example")
    assert example["status"] == "sound"
    assert example["devices"][0]["right"] == 1
    assert example["devices"][0]["unsupported"] == len(checkup.JOBS) - 1
    assert answer.words["program"]["devices"] == ["Example", "CPU"]
    assert best["path"] in answer.words["program"]["loaded"]
    assert answer.words["exclude"] == ""
    assert answer.words["variables"]["WHISPYX_BACKEND_PATH"] == str(example_folder)
    assert {encoder["name"] for encoder in answer.words["encoders"]} == {"openvino", "coreml"}


# What is wrong, what the doctor calls it, what it says, and whether a program that loads the plugin still works.
ILL = [
    ("crash-open", "crashes", "SIGSEGV, being loaded", False),
    ("abort-init", "crashes", "SIGABRT, being loaded", False),
    ("exit-open", "leaves", "exit code 0, being loaded", False),
    ("exit-init", "leaves", "exit code 0, being loaded", False),
    ("crash-score", "crashes", "SIGSEGV, being loaded", False),
    ("crash-memory", "crashes", "SIGSEGV, telling about its device Patient", True),
    ("crash-start", "crashes", "SIGSEGV, starting its device Patient", True),
    ("crash-compute", "crashes", "SIGSEGV, computing MUL_MAT/f32", True),
    ("abort-compute", "crashes", "SIGABRT, computing MUL_MAT/f32", True),
    ("exit-compute", "leaves", "exit code 0, computing MUL_MAT/f32", True),
    ("lie", "lies", "wrong numbers", True),
    ("lie-once", "lies", "wrong numbers", True),
    ("lazy", "lies", "wrong numbers", True),
    ("nan", "lies", "wrong numbers", True),
    ("fail", "fails", "failed while computing", True),
    ("memory", "fails", "ran out of memory", True),
    ("no-start", "fails", "could not be started", True),
]


@pytest.mark.parametrize(("illness", "status", "reason", "works"), ILL, ids=[case[0] for case in ILL])
def test_a_harmful_plugin_is_named_and_its_exclusion_is_tried(
    illness: str, status: str, reason: str, works: bool, patient: Path
) -> None:
    answer = doctor(patient.parent, PATIENT=illness)
    assert answer.code == (1 if works else 4), answer.words
    found = answer.plugin("patient")
    assert found["status"] == status
    assert reason in found["reason"]
    assert answer.words["program"]["works"] is works
    assert answer.words["exclude"] == "patient"
    assert answer.words["without"]["works"] is True
    assert answer.words["without"]["devices"] == ["CPU"]
    assert str(patient) in answer.words["advice"][0]
    assert "Set WHISPYX_BACKEND_EXCLUDE=patient. This has been tried" in answer.words["advice"][1]
    # The CPU is judged all the same.
    assert {p["status"] for p in answer.words["plugins"] if p["name"] == "cpu"} == {"sound"}


@pytest.mark.parametrize(("illness", "works"), [("hang-init", False), ("hang-compute", True)])
def test_a_plugin_that_hangs_is_stopped(illness: str, works: bool, patient: Path) -> None:
    answer = doctor(patient.parent, PATIENT=illness)
    assert answer.code == (1 if works else 4), answer.words
    assert answer.plugin("patient")["status"] == "hangs"
    assert f"no answer for {SECONDS} s" in answer.plugin("patient")["reason"]
    assert answer.words["exclude"] == "patient"
    assert answer.words["without"]["works"] is True


def test_following_the_advice_makes_all_well(patient: Path) -> None:
    answer = doctor(patient.parent, PATIENT="crash-open", WHISPYX_BACKEND_EXCLUDE="patient")
    assert answer.code == 0, answer.words
    assert answer.plugin("patient")["status"] == "excluded"
    assert answer.plugin("patient")["devices"] == []
    assert answer.words["program"]["devices"] == ["CPU"]
    assert answer.words["advice"] == []


def test_what_was_excluded_before_stays_excluded(patient: Path, example_folder: Path) -> None:
    answer = doctor(patient.parent, example_folder, PATIENT="lie", WHISPYX_BACKEND_EXCLUDE="example")
    assert set(answer.words["exclude"].split(",")) == {"example", "patient"}
    assert answer.words["without"]["devices"] == ["CPU"]


def test_a_bad_variant_of_the_cpu_does_not_make_the_others_look_bad(patient: Path, tmp_path: Path) -> None:
    """Every other plugin is tried beside a CPU plugin, which must be a sound one."""
    bad = tmp_path / "bad"
    bad.mkdir()
    shutil.copy(patient, bad / "libggml-cpu-bad.so")
    shutil.copy(patient, tmp_path / "libggml-patient.so")
    answer = doctor(bad, tmp_path, PATIENT="crash-score")
    assert answer.plugin("cpu-bad")["status"] == "crashes"
    assert answer.plugin("cpu-x64")["status"] == "sound"
    assert set(answer.words["exclude"].split(",")) == {"cpu-bad", "patient"}
    assert answer.words["without"]["works"] is True


def test_of_two_files_of_a_name_only_the_bad_one_is_ruled_out(
    compiler: Compiler, patient: Path, example_folder: Path, tmp_path: Path
) -> None:
    shutil.copy(patient, tmp_path / "libggml-example.so")
    answer = doctor(tmp_path, example_folder, PATIENT="crash-init")
    assert answer.plugin(str(example_folder / "libggml-example.so"))["status"] == "sound"
    assert answer.words["exclude"] == str(tmp_path / "libggml-example.so")
    assert answer.words["without"]["devices"] == ["Example", "CPU"]


def test_a_plugin_for_another_machine_is_no_fault(patient: Path) -> None:
    answer = doctor(patient.parent, PATIENT="other-machine")
    assert answer.code == 0, answer.words
    assert answer.plugin("patient")["status"] == "unsuitable"


def test_a_plugin_that_cannot_be_loaded_is_a_fault_that_leaves_programs_working(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler.odd(tmp_path, '-DODD_GGML_VERSION="0.9.4"')
    answer = doctor(tmp_path)
    assert answer.code == 1, answer.words
    assert answer.plugin("odd")["status"] == "refused"
    assert "built from ggml 0.9.4" in answer.plugin("odd")["reason"]
    assert answer.words["program"]["works"] is True
    assert answer.words["program"]["fallbacks"], "the program's report tells it, too"
    assert "odd cannot be used" in answer.advice
    assert answer.words["exclude"] == ""


def test_a_crash_at_the_end_is_a_fault_of_its_own(patient: Path) -> None:
    answer = doctor(patient.parent, PATIENT="crash-close")
    assert answer.code == 1, answer.words
    assert answer.plugin("patient")["status"] == "crashes late"
    assert answer.plugin("patient")["devices"][0]["right"] > 0
    assert "programs that use it seem to fail" in answer.advice


def test_a_plugin_that_computes_nothing_is_told(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path)
    answer = doctor(tmp_path)
    assert answer.plugin("odd")["status"] in ("fails", "sound")
    assert answer.words["advice"]


def test_a_selection_that_cannot_be_had_is_told(patient: Path) -> None:
    answer = doctor(patient.parent, WHISPYX_BACKEND="vulkan:3")
    assert answer.code == 4
    assert answer.words["program"]["works"] is False
    assert "WHISPYX_BACKEND asks for 'vulkan:3'" in answer.advice


def test_a_selection_is_what_a_program_gets(patient: Path) -> None:
    answer = doctor(patient.parent, WHISPYX_BACKEND="cpu")
    assert answer.code == 0, answer.words
    assert answer.words["program"]["selected"] is True
    assert answer.words["program"]["devices"] == ["CPU"]
    # Nobody has selected it; it is tried all the same.
    assert answer.plugin("patient")["status"] == "sound"


def test_a_folder_that_is_not_there_is_told() -> None:
    answer = doctor(Path("/nonexistent/plugins"))
    assert answer.code == 1
    assert "A place cannot be searched: /nonexistent/plugins" in answer.advice


def test_a_variable_with_a_slip_in_its_name_is_told() -> None:
    answer = doctor(WHISPYX_BACKENDS="cpu")
    assert answer.code == 0
    assert answer.words["advice"] == ["WHISPYX_BACKENDS is no variable of whispyx; is WHISPYX_BACKEND meant?"]


def test_a_forced_variant_is_told() -> None:
    answer = doctor(WHISPYX_CPU_VARIANT="x64")
    assert answer.code == 0, answer.words
    assert any("cpu-x64" in path for path in answer.words["program"]["loaded"])
    if len([p for p in answer.words["plugins"] if p["name"] == "cpu" and p["status"] == "sound"]) > 1:
        assert "WHISPYX_CPU_VARIANT holds whispyx to x64" in answer.advice


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("WHISPYX_BACKEND_PATH", "rel", 4),
        ("WHISPYX_PLUGIN_HOME", "rel", 4),
        ("WHISPYX_CPU_VARIANT", "a/b", 4),
        ("WHISPYX_BACKEND_EXCLUDE", "not/absolute", 4),
        ("WHISPYX_BACKEND_EXCLUDE", "cpu,?", 4),
        ("WHISPYX_BACKEND", "cpu,,", 4),
        ("WHISPYX_RPC_SERVERS", "nowhere", 1),
        ("WHISPYX_RPC_TIMEOUT", "nan", 1),
        ("WHISPYX_RPC_TIMEOUT", "-1", 1),
    ],
)
def test_malformed_variables_are_told_and_the_rest_is_examined(name: str, value: str, code: int) -> None:
    answer = doctor(**{name: value})
    assert answer.code == code, answer.words
    assert answer.words["ok"] is False
    assert answer.words["program"]["works"] is (code == 1)
    assert list(answer.words["malformed"]) == [name]
    assert name in answer.words["advice"][0]
    assert repr(value.split(",")[-1] or "empty").strip("'") in answer.words["advice"][0]
    assert answer.advice.count(answer.words["malformed"][name]) == 1
    assert answer.words["variables"][name] == value
    assert {p["status"] for p in answer.words["plugins"] if p["name"] == "cpu"} == {"sound"}


def test_malformed_variables_do_not_hide_a_harmful_plugin(patient: Path) -> None:
    answer = doctor(patient.parent, PATIENT="crash-open", WHISPYX_BACKEND_EXCLUDE="a/b", WHISPYX_CPU_VARIANT="a/b")
    assert answer.code == 4
    assert set(answer.words["malformed"]) == {"WHISPYX_BACKEND_EXCLUDE", "WHISPYX_CPU_VARIANT"}
    assert answer.words["exclude"] == "patient"
    assert answer.words["without"]["works"] is True


def test_malformed_variables_are_told_in_the_text() -> None:
    done = python("whispyx", "doctor", flags=["-m"], env={"WHISPYX_PLUGIN_HOME": "rel"})
    assert (done.returncode, done.stderr) == (4, "")
    assert "  1. WHISPYX_PLUGIN_HOME is the relative path 'rel'" in done.stdout
    done = python("whispyx", "backends", "list", flags=["-m"], env={"WHISPYX_PLUGIN_HOME": "rel"})
    assert done.returncode == 2
    assert done.stderr.startswith("whispyx: WHISPYX_PLUGIN_HOME is the relative path 'rel'")


def test_every_variable_of_this_package_is_read() -> None:
    """READERS knows every variable that some module here declares."""
    here = Path(variables.__file__).parent
    declared = set(re.findall(r'_VARIABLE: Final = "(WHISPYX_\w+)"', "".join(p.read_text() for p in here.glob("*.py"))))
    assert declared and declared == set(variables.READERS)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("nosuch", "names no encoder"),
        ("/nonexistent/x-encoder-openvino.xml", "/nonexistent/x-encoder-openvino.xml"),
        ("openvino:TPU9", "TPU9"),
        ("coreml", "macOS"),
    ],
)
def test_an_encoder_that_cannot_be_had_is_told(value: str, told: str) -> None:
    if value.startswith("coreml") and sys.platform == "darwin":
        pytest.skip("CoreML is here")
    answer = doctor(WHISPYX_ENCODER=value)
    assert answer.code == 4, answer.words
    assert answer.words["ok"] is False
    assert answer.words["encoder"]["chosen"] == value and answer.words["encoder"]["usable"] is False
    assert f"With WHISPYX_ENCODER={value} no model can be opened" in answer.words["advice"][0]
    assert told in answer.words["advice"][0] or "OpenVINO is not installed" in answer.words["advice"][0]


@pytest.mark.parametrize("value", ["", " ", "model", " Model "])
def test_the_models_own_encoder_is_no_fault(value: str) -> None:
    answer = doctor(WHISPYX_ENCODER=value)
    assert answer.code == 0, answer.words
    assert answer.words["encoder"] == {"chosen": None, "usable": True, "text": "the model itself"}


def test_an_encoder_that_works_is_named() -> None:
    pytest.importorskip("openvino")
    answer = doctor(WHISPYX_ENCODER="OpenVINO")
    assert answer.code == 0, answer.words
    assert re.fullmatch(r"OpenVINO \S+ on CPU", answer.words["encoder"]["text"])


def test_an_exclusion_that_rules_nothing_out_is_told(patient: Path) -> None:
    path = str(patient)
    answer = doctor(patient.parent, WHISPYX_BACKEND_EXCLUDE=f"vulkan, {path},/nonexistent/libggml-x.so,CPU-x64")
    assert answer.code == 0, answer.words
    told = [text for text in answer.words["advice"] if "rules nothing out" in text]
    assert len(told) == 2
    assert "'vulkan'" in told[0] and "patient" in told[0] and "/nonexistent/libggml-x.so" in told[1]


@pytest.mark.parametrize("entries", ["cpu", "patient,CPU"])
def test_the_exclusion_of_every_cpu_plugin_is_named(entries: str) -> None:
    answer = doctor(WHISPYX_BACKEND_EXCLUDE=entries)
    assert answer.code == 4, answer.words
    assert f"WHISPYX_BACKEND_EXCLUDE={entries} rules out cpu-" in answer.advice
    assert "install whispyx again" not in answer.advice


def test_wrong_arguments_are_an_error() -> None:
    done = python("whispyx", "doctor", "--timeout", "0", flags=["-m"])
    assert done.returncode == 2


def test_the_text_says_the_same(patient: Path) -> None:
    env = {"WHISPYX_BACKEND_PATH": str(patient.parent), "PATIENT": "abort-compute"}
    done = python("whispyx", "doctor", flags=["-m"], env=env)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert re.search(r"^  patient: crashes, score 1, loaded$", done.stdout, re.MULTILINE)
    assert "it printed: patient.c:27: assertion failed" in done.stdout
    assert "2. Set WHISPYX_BACKEND_EXCLUDE=patient." in done.stdout
    assert f"  WHISPYX_BACKEND_PATH={patient.parent}" in done.stdout


def test_no_secret_of_an_address_is_shown() -> None:
    shown = in_force({"WHISPYX_HUB": "https://me:secret@hub.example/x", "GGML_VK_VISIBLE_DEVICES": "0", "HOME": "x"})
    assert shown == {"WHISPYX_HUB": "https://…@hub.example/x", "GGML_VK_VISIBLE_DEVICES": "0"}


def test_every_documented_variable_is_known_to_the_doctor() -> None:
    document = ROOT / "docs" / "environment.md"
    if not document.exists():
        pytest.skip("the tests run outside of the repository: no docs here")
    documented = set(re.findall(r"^\| `(WHISPYX_[A-Z_]+)` \|", document.read_text("utf-8"), re.MULTILINE))
    assert documented <= set(VARIABLES), "add it to VARIABLES in whispyx/plugins/advice.py"


def test_a_driver_that_is_only_software_is_told() -> None:
    device = DeviceCheck("Vulkan0", "GPU", 0, "llvmpipe (LLVM 15.0.6, 256 bits)", 1, 1, {}, right=15)
    plugins = (
        Examination(
            "/p/libggml-cpu.so", "cpu", "", "package", devices=(DeviceCheck("CPU", "CPU", 0, "x", 1, 1, {}, 15),)
        ),
        Examination("/p/libggml-vulkan.so", "vulkan", "", "package", devices=(device,)),
    )
    program = Program(True, devices=("Vulkan0", "CPU"))
    (text,) = advice(Diagnosis(plugins, (), (), program), {})
    assert "Vulkan0 is no hardware" in text
    assert advice(Diagnosis(plugins, (), (), replace(program, devices=("CPU",))), {}) == []
