"""Every operation of the graphs on every plugin that is here, and plugins that are wrong in ways we know."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.oracle import quants
from tests.plugins.toolkit import SOURCES, Compiler, python
from whispyx._core.optest import OpTester, decode, encode
from whispyx.errors import BackendError, BackendNotFoundError, DeviceError, ParamsError
from whispyx.plugins import conformance, discovery, exact
from whispyx.plugins.bounds import BOUNDS, bound_of, nmse
from whispyx.plugins.cases import WEIGHT_TYPES, cases, inputs_of
from whispyx.plugins.conformance import CaseResult, DeviceResult, Referee, Target

ROOT = Path(__file__).resolve().parents[2]
THREADS = 2
VARIANTS = [c.tag for c in discovery.discover(frozenset({"cpu"})).candidates if c.name == "cpu" and c.tag != "x64"]
FEW = ("ADD/f32/tiny/*", "MUL_MAT/f32/tiny/attention*", "MUL_MAT/f16/tiny/attention*")
PATIENT_SECONDS = 15.0  # for a case that is to hang, and long enough for one that is not

# What ggml calls the operations that the graphs' functions make.
MADE_BY = {
    "flash_attn_ext": "FLASH_ATTN_EXT",
    "soft_max_ext": "SOFT_MAX",
    "conv_1d_ph": "IM2COL",
    "cast": "CPY",
}
LOOKS_ONLY = {"reshape_2d", "reshape_3d", "view_1d", "view_2d", "view_3d", "permute", "transpose"}


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    """All cases, computed once for all devices."""
    with conformance.referee(cases(), THREADS) as made:
        yield made


@pytest.fixture(scope="module")
def few() -> Iterator[Referee]:
    with conformance.referee(conformance.chosen(FEW), THREADS) as made:
        yield made


@pytest.fixture(scope="module")
def patient(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiler.library(tmp_path_factory.mktemp("patient") / "libggml-patient.so", [SOURCES / "patient.c"])


def judged(target: Target, referee: Referee, seconds: float = conformance.CASE_SECONDS) -> DeviceResult:
    (result,) = conformance.run(conformance.find(target, seconds), referee, THREADS, seconds)
    return result


def explain(result: DeviceResult) -> str:
    return "\n".join(f"{r.outcome}: {r.name}: {r.nmse} > {r.bound} ({r.reason})" for r in result.results if not r.ok)


def by_outcome(result: DeviceResult) -> dict[str, list[CaseResult]]:
    found: dict[str, list[CaseResult]] = {}
    for case in result.results:
        found.setdefault(case.outcome, []).append(case)
    return found


def test_the_table_has_every_operation_of_the_graphs() -> None:
    made = set()
    for source in [*(ROOT / "whispyx/_core/graph").glob("*.pyx"), ROOT / "whispyx/_core/vad/graph.pyx"]:
        made |= set(re.findall(r"\bggml_(\w+)\(\s*g\b", source.read_text()))
    operations = {MADE_BY.get(name, name.upper()) for name in made if not name.startswith("new_")}
    operations -= {name.upper() for name in LOOKS_ONLY}
    assert len(operations) > 12
    assert operations <= {case.op for case in cases()}


def test_the_table_has_every_size_and_every_type_of_weights() -> None:
    products = {(case.size, case.type) for case in cases() if case.op == "MUL_MAT"}
    assert {size for size, _ in products} == {"tiny", "base", "small", "medium", "large", "vad"}
    assert {type for _, type in products} == set(WEIGHT_TYPES)


def test_inputs_are_the_same_at_every_call() -> None:
    for case in conformance.chosen(["SET_ROWS/f16/tiny/*", "GET_ROWS/q4_K/large/*", "SOFT_MAX/f32/base/*"]):
        for first, second in zip(inputs_of(case), inputs_of(case), strict=True):
            assert first[:3] == second[:3]
            np.testing.assert_array_equal(first[3], second[3])


@pytest.mark.parametrize("type", WEIGHT_TYPES)
def test_numbers_of_a_type_are_those_of_an_independent_reader(type: str) -> None:
    values = np.random.default_rng(7).standard_normal((3, 512), dtype=np.float32)
    data = encode(values, type)
    np.testing.assert_allclose(
        decode(data, type), quants.decode(quants.ENCODINGS[type.lower()], data.tobytes()), rtol=1e-6, atol=1e-7
    )


def test_the_error_is_that_of_the_definition() -> None:
    assert nmse(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0
    assert nmse(np.array([1.0, 2.2]), np.array([1.0, 2.0])) == pytest.approx(0.04 / 5)
    assert nmse(np.array([0.0, 0.0]), np.array([0.0, 0.0])) == 0
    assert nmse(np.array([0.0, 0.1]), np.array([0.0, 0.0])) == np.inf
    assert nmse(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == np.inf
    assert nmse(np.array([1.0]), np.array([1.0, 2.0])) == np.inf


def test_float64_agrees_with_formulas_written_in_another_way() -> None:
    """The steps in NumPy are the truth here, so a few are held to loops over single numbers."""
    (case,) = conformance.chosen(["conv/f32/tiny/second*"])
    kernel, sound = (np.frombuffer(data, np.float32).reshape(shape) for _, _, shape, data, _ in inputs_of(case))
    values = exact.compute(case, inputs_of(case)).reshape(kernel.shape[0], -1)
    for channel, at in ((0, 0), (7, 3), (383, values.shape[1] - 1)):
        taps = [(at * 2 + k - 1, k) for k in range(3)]
        expected = sum(
            float(kernel[channel, :, k].astype(float) @ sound[:, i]) for i, k in taps if 0 <= i < sound.shape[1]
        )
        assert values[channel, at] == pytest.approx(expected, rel=1e-9, abs=1e-12)

    (case,) = conformance.chosen(["FLASH_ATTN_EXT/f16/tiny/self,n=5x256"])
    q, kc, vc, mask = ((data, shape) for _, _, shape, data, _ in inputs_of(case))
    q_rows = np.frombuffer(q[0], np.float32).reshape(5, 6, 64).astype(float)
    k_rows, v_rows = (np.frombuffer(x[0], np.float16)[448 * 384 :].reshape(448, 6, 64).astype(float) for x in (kc, vc))
    shown = np.frombuffer(mask[0], np.float16).reshape(5, 256)
    values = exact.compute(case, inputs_of(case)).reshape(5, 6, 64)
    for token, head in ((0, 0), (4, 5), (2, 3)):
        seen = [j for j in range(256) if shown[token, j] == 0]
        assert 0 < len(seen) < 256
        weights = [np.exp(0.25 * float(q_rows[token, head] @ k_rows[j, head])) for j in seen]
        expected = sum(w * v_rows[j, head] for w, j in zip(weights, seen, strict=True)) / sum(weights)
        np.testing.assert_allclose(values[token, head], expected, rtol=1e-9)


def test_the_referee_is_near_float64_in_every_operation(referee: Referee) -> None:
    """So a fault that both CPU variants share is seen; the limits are those of devices."""
    assert "cpu-x64" in referee.path
    checked = [case for case in referee.cases if case.name in referee.errors]
    assert {case.op for case in checked} == {case.op for case in cases()}
    assert {case.type for case in checked} >= set(WEIGHT_TYPES)
    for case in checked:
        assert referee.errors[case.name] <= bound_of(case).limit / 4, case.name


@pytest.mark.parametrize("tag", VARIANTS)
def test_a_variant_of_the_cpu_agrees_with_the_referee(tag: str, referee: Referee) -> None:
    result = judged(Target(f"cpu-{tag}", "cpu", tag), referee)
    assert tag in result.path
    assert result.ok, explain(result)
    assert set(by_outcome(result)) == {"ok"}  # the CPU computes what no other device does


def test_blas_agrees_with_the_referee(referee: Referee, built: Callable[[str], Path]) -> None:
    result = judged(Target("blas", str(built("blas") / "libggml-blas.so")), referee)
    assert result.ok, explain(result)
    right = by_outcome(result)["ok"]
    assert {case.op for case in right} == {"MUL_MAT"}
    assert {case.type for case in right} == set(WEIGHT_TYPES)


def test_a_device_behind_rpc_agrees_with_the_referee(
    referee: Referee, built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = built("rpc") / "libggml-rpc.so"
    monkeypatch.setenv("WHISPYX_BACKEND_PATH", str(plugin.parent))
    command = [sys.executable, "-m", "whispyx", "rpc-server", "--port", "0", "--device", "cpu"]
    server = subprocess.Popen([*command, "--threads", "2"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, "the server ended"
        monkeypatch.setenv("WHISPYX_RPC_SERVERS", line.split()[-1])
        result = judged(Target("rpc", str(plugin)), referee)
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert result.ok, explain(result)
    assert set(by_outcome(result)) == {"ok"}


def test_vulkan_agrees_with_the_referee(built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a software driver where there is no other; that one is slow, so only the smallest model's shapes."""
    plugin = built("vulkan") / "libggml-vulkan.so"
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", os.environ.get("GGML_VK_VISIBLE_DEVICES", "0"))
    monkeypatch.setenv("GGML_VK_DISABLE_F16", os.environ.get("GGML_VK_DISABLE_F16", "1"))  # docs/backends/vulkan.md
    which = conformance.chosen(["*/tiny/*", "*/vad/*"])
    with conformance.referee(which, THREADS) as referee:
        result = judged(Target("vulkan", str(plugin)), referee, 600)
    assert result.ok, explain(result)
    assert len(by_outcome(result)["ok"]) > 100


def test_the_example_plugin_agrees_and_says_what_it_does_not_support(few: Referee, example_folder: Path) -> None:
    result = judged(Target("example", str(example_folder / "libggml-example.so")), few)
    assert result.ok, explain(result)
    assert {case.op for case in by_outcome(result)["ok"]} == {"ADD"}
    assert {case.op for case in by_outcome(result)["unsupported"]} == {"ADD", "MUL_MAT"}


def test_the_patient_is_healthy_when_nothing_is_wrong_with_it(few: Referee, patient: Path) -> None:
    result = judged(Target("patient", str(patient)), few)
    assert result.ok, explain(result)
    assert result.notes == ()
    assert {(case.op, case.type) for case in by_outcome(result)["ok"]} == {("ADD", "f32"), ("MUL_MAT", "f32")}


@pytest.mark.parametrize(
    ("illness", "outcome", "reason"),
    [
        ("lie", "wrong", ""),
        ("lie-once", "wrong", ""),
        ("lazy", "wrong", ""),
        ("nan", "wrong", "not finite"),
        ("fail", "failed", "ComputeError: Patient failed while computing"),
        ("memory", "failed", "ComputeMemoryError: Patient ran out of memory"),
        ("crash-compute", "crashed", "died of SIGSEGV"),
        ("abort-compute", "crashed", "died of SIGABRT; it printed: patient.c:27: assertion failed"),
        ("exit-compute", "crashed", "ended by itself with exit code 0"),
    ],
)
def test_an_ill_plugin_is_found_out(
    illness: str, outcome: str, reason: str, few: Referee, patient: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATIENT", illness)
    result = judged(Target("patient", str(patient)), few)
    assert not result.ok
    found = by_outcome(result)
    assert {case.op for case in found[outcome]} == {"MUL_MAT"}
    assert len(found[outcome]) == 3
    assert all(reason in case.reason for case in found[outcome])
    # What the illness does not touch is judged all the same.
    assert {case.op for case in found["ok"]} == {"ADD"}
    assert {case.type for case in found["unsupported"]} == {"f32", "f16"}


def test_a_plugin_that_hangs_is_stopped(patient: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATIENT", "hang-compute")
    which = conformance.chosen(["ADD/f32/tiny/same,n=1", "MUL_MAT/f32/tiny/attention*n=1"])
    with conformance.referee(which, THREADS) as referee:
        result = judged(Target("patient", str(patient)), referee, PATIENT_SECONDS)
    assert [(case.op, case.outcome) for case in result.results] == [("ADD", "ok"), ("MUL_MAT", "hung")]
    assert f"no answer for {PATIENT_SECONDS:g} s" in result.results[1].reason


def test_a_plugin_that_always_crashes_is_not_started_for_ever(patient: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATIENT", "crash-compute")
    which = conformance.chosen(["MUL_MAT/f32/tiny/*", "MUL_MAT/f32/base/*", "ADD/f32/tiny/same,n=1"])
    with conformance.referee(which, THREADS) as referee:
        found = by_outcome(judged(Target("patient", str(patient)), referee))
    assert len(found["crashed"]) == conformance.MAX_RESTARTS + 1
    assert found["not run"]
    assert "processes have died" in found["not run"][0].reason


@pytest.mark.parametrize(
    ("illness", "kind", "text"),
    [
        ("crash-open", BackendError, "died of SIGSEGV"),
        ("exit-init", BackendError, "exit code 0"),
        ("refuse", BackendError, "refused to start"),
        ("other-machine", BackendError, "does not support this machine"),
        ("no-start", DeviceError, "could not be started"),
        ("no-memory-type", DeviceError, "names no kind of memory"),
    ],
)
def test_a_plugin_that_does_not_load_or_start_is_an_error(
    illness: str, kind: type[BackendError], text: str, few: Referee, patient: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATIENT", illness)
    with pytest.raises(kind, match=text):
        judged(Target("patient", str(patient)), few)


def test_what_a_plugin_prints_does_not_disturb(few: Referee, patient: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATIENT", "noisy")
    assert judged(Target("patient", str(patient)), few).ok


def test_a_crash_at_the_end_is_told(few: Referee, patient: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATIENT", "crash-close")
    result = judged(Target("patient", str(patient)), few)
    assert any("SIGSEGV at its end" in note for note in result.notes)


def test_a_closed_tester_and_wrong_arguments_are_errors() -> None:
    code = """
import whispyx.plugins as plugins
from whispyx._core.devices import cpu_device
from whispyx._core.optest import OpTester
from whispyx.errors import WhispyxError
import numpy as np
plugins.load("cpu")
def attempt(act):
    try: act()
    except WhispyxError as error: print(type(error).__name__, error)
x = ("x", "f32", (2, 3), np.zeros(6, np.float32), False)
attempt(lambda: OpTester(cpu_device(), 0))
tester = OpTester(cpu_device(), 1)
attempt(lambda: tester.run([x], [("y", "nonsense", "x")]))
attempt(lambda: tester.run([x], [("y", "norm", "z")]))
attempt(lambda: tester.run([x], []))
attempt(lambda: tester.run([("x", "f32", (2, 4), np.zeros(6, np.float32), False)], [("y", "norm", "x")]))
attempt(lambda: tester.run([("x", "q4_0", (2, 3), np.zeros(6, np.float32), False)], [("y", "norm", "x")]))
attempt(lambda: tester.run([("x", "f33", (2, 3), np.zeros(6, np.float32), False)], [("y", "norm", "x")]))
tester.close(); tester.close()
attempt(lambda: tester.run([x], [("y", "norm", "x")]))
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    kinds = [line.split()[0] for line in done.stdout.splitlines()]
    assert kinds == ["ParamsError"] * 7 + ["StateError"]
    assert OpTester is not None


def test_names_of_targets() -> None:
    assert conformance.targets("cpu-haswell") == (Target("cpu-haswell", "cpu", "haswell"),)
    assert conformance.targets("vulkan:1") == (Target("vulkan:1", "vulkan:1"),)
    assert {target.variant for target in conformance.targets("all")} >= set(VARIANTS)
    with pytest.raises(ParamsError, match="no case is called"):
        conformance.chosen(["NOTHING/*"])


def test_the_command_tells_what_is_wrong_and_how_it_ended(patient: Path) -> None:
    case = ["--case", "MUL_MAT/f32/tiny/attention*n=1", "--case", "ADD/f32/tiny/row*"]
    command = ["backends", "test", str(patient), *case]
    good = python("whispyx", *command, flags=["-m"])
    assert good.returncode == 0, good.stderr
    assert "2 cases right, 2 not supported (another device computes them), 0 wrong" in good.stdout
    bad = python("whispyx", *command, flags=["-m"], env={"PATIENT": "lie"})
    assert bad.returncode == 1, bad.stderr
    assert "wrong: MUL_MAT/f32/tiny/attention 384->384,n=1, error 1.0e-04 (allowed: 1e-06)" in bad.stdout
    gone = python("whispyx", *command[:3], "nothing", *case, flags=["-m"], env={"PATIENT": "crash-open"})
    assert gone.returncode == 4
    assert "died of SIGSEGV" in gone.stderr
    assert "there is no plugin and no device of that name" in gone.stderr


def test_the_command_speaks_json(patient: Path) -> None:
    command = ["backends", "test", str(patient), "cpu", "--json", "--case", "MUL_MAT/f32/tiny/attention*n=1"]
    done = python("whispyx", *command, flags=["-m"], env={"PATIENT": "nan"})
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert [(device["device"], device["ok"]) for device in answer["devices"]] == [("Patient", False), ("CPU", True)]
    assert answer["devices"][0]["results"][0]["nmse"] is None
    assert {bound["name"] for bound in answer["bounds"]} == set(BOUNDS)
    assert answer["refused"] == []


def test_a_name_that_nobody_knows_is_an_error(few: Referee) -> None:
    with pytest.raises(BackendNotFoundError, match="no plugin and no device"):
        judged(Target("nope", "nope"), few)
