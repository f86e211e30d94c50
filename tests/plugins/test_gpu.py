"""Models on a GPU, here one made of the CPU (sources/gpu.c): choice, placement, and what is done without room."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import data
from tests.oracle.tiny_model import TinyModel
from tests.plugins.toolkit import SOURCES, Compiler, ask, python

MODEL = """
import json, sys
import numpy as np
import whispyx

def describe(model):
    return {"devices": list(model.devices),
            "fallbacks": [[f.wanted, f.used, f.reason] for f in model.devices.fallbacks],
            "placement": {s: {d: dict(o) for d, o in p.items()} for s, p in model.devices.placement.items()}}

def attempt(call):
    try:
        return call()
    except whispyx.WhispyxError as error:
        return {"error": str(error), "kinds": [kind.__name__ for kind in type(error).__mro__]}

def answer(value):
    print(json.dumps(value))

path = sys.argv[1]
noise = np.random.default_rng(3).standard_normal(16000).astype(np.float32) * 0.1
ONE_PASS = {"temperature_inc": 0.0, "max_tokens": 12}
"""


def child(code: str, *arguments: str, env: Mapping[str, str]) -> Any:
    done = python(MODEL + code, *arguments, env=env)
    if done.returncode < 0:
        pytest.fail(f"the child died of {signal.Signals(-done.returncode).name}\n{done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def gpu(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a process that has the GPU."""
    folder = tmp_path_factory.mktemp("gpu")
    compiler.library(folder / "libggml-fakegpu.so", [SOURCES / "gpu.c"], ["-D_GNU_SOURCE", "-ldl"])
    cpu = ask("attempt()\nanswer(table.cpu_device().plugin_path)")
    return {"WHISPYX_BACKEND_PATH": str(folder), "FAKE_GPU_CPU": cpu}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of random weights."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.bin"
    TinyModel(weight_type="f16").write(path)
    return str(path)


TEXT = """
found = {}
for name, settings in (("CPU", {"use_gpu": False}), ("GPU", {}), ("plain", {"flash_attn": False})):
    with whispyx.Model(path, **settings) as model:
        made = [model.transcribe(sys.argv[2], beam_size=beams).segments for beams in (1, 5)]
        text = [[(s.text, s.start, s.end) for s in segments] for segments in made]
        found[name] = {"text": text, **describe(model)}
answer(found)
"""


def test_speech_gives_the_same_text_and_times_on_the_gpu(gpu: dict[str, str]) -> None:
    model = str(data.or_skip(data.model_file, "tiny.en"))
    found = child(TEXT, model, str(data.or_skip(data.jfk_wav)), env=gpu)
    assert "ask not what your country can do for you" in found["CPU"]["text"][0][0][0]
    assert found["GPU"]["text"] == found["CPU"]["text"]
    assert [[s[0] for s in text] for text in found["plain"]["text"]] == [
        [s[0] for s in t] for t in found["CPU"]["text"]
    ]
    assert found["CPU"]["devices"] == ["CPU"]
    assert found["CPU"]["placement"] == {}
    assert found["GPU"]["devices"] == ["FakeGPU0", "CPU"]
    for stage in ("the convolutions", "the encoder", "the decoder"):
        assert list(found["GPU"]["placement"][stage]) == ["FakeGPU0"], stage
        assert found["GPU"]["placement"][stage]["FakeGPU0"]["MUL_MAT"] > 0
    assert found["GPU"]["fallbacks"] == []


RUN = """
def run(*arguments, **settings):
    with whispyx.Model(path, *arguments, **settings) as model:
        made = model.transcribe(noise, **ONE_PASS)
        tokens = [[t.id for t in s.tokens] for s in made.segments]
        return {"tokens": tokens, "used": list(made.devices), **describe(model)}
"""


@pytest.mark.parametrize(
    ("settings", "devices"),
    [
        ("", ["FakeGPU0", "CPU"]),
        ("gpu_device=1", ["FakeGPU1", "CPU"]),
        ("use_gpu=False", ["CPU"]),
        ("backend='gpu'", ["FakeGPU0", "CPU"]),
        ("backend='gpu:1'", ["FakeGPU1", "CPU"]),
        ("backend='fakegpu:1,cpu'", ["FakeGPU1", "CPU"]),
        ("backend='fakegpu:1,fakegpu'", ["FakeGPU1", "FakeGPU0", "CPU"]),
        ("backend='fakegpu:1,fakegpu', gpu_device=1", ["FakeGPU0", "CPU"]),
        ("backend='fakegpu', use_gpu=False", ["CPU"]),
    ],
)
def test_two_devices_of_one_kind_are_told_apart(
    gpu: dict[str, str], tiny: str, tmp_path: Path, settings: str, devices: list[str]
) -> None:
    trace = tmp_path / "trace"
    env = {**gpu, "FAKE_GPU_DEVICES": "2", "FAKE_GPU_TRACE": str(trace)}
    found = child(RUN + f"answer([run({settings}), run(backend='cpu')])", tiny, env=env)
    assert found[0]["devices"] == found[0]["used"] == devices
    assert found[0]["tokens"] == found[1]["tokens"]
    worked = {line.split()[0] for line in trace.read_text().splitlines()} if trace.exists() else set()
    assert worked == set(devices[:1]) - {"CPU"}


@pytest.mark.parametrize(
    "settings", ["gpu_device=2", "backend='gpu:2'", "backend='fakegpu:2'", "backend='gpu',gpu_device=1"]
)
def test_an_index_out_of_range_is_an_error_that_lists_what_there_is(
    gpu: dict[str, str], tiny: str, settings: str
) -> None:
    found = child(
        f"answer(attempt(lambda: whispyx.Model(path, {settings})))", tiny, env={**gpu, "FAKE_GPU_DEVICES": "2"}
    )
    assert {"BackendNotFoundError", "LookupError"} <= set(found["kinds"])
    assert "FakeGPU0" in found["error"]


def test_the_variable_is_obeyed_and_an_argument_counts_more(gpu: dict[str, str], tiny: str) -> None:
    env = {**gpu, "FAKE_GPU_DEVICES": "2", "WHISPYX_BACKEND": "fakegpu:1"}
    code = "answer([run()['devices'], run(backend='fakegpu:0')['devices'], run(use_gpu=False)['devices']])"
    assert child(RUN + code, tiny, env=env) == [["FakeGPU1", "CPU"], ["FakeGPU0", "CPU"], ["CPU"]]


# Room for nothing; for the weights but no job. (The model has about 1.5 MB of weights.)
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ({"FAKE_GPU_MEMORY": "100000"}, "the weights"),
        ({"FAKE_GPU_MEMORY": "4000000"}, "no memory for"),
        ({"FAKE_GPU_NO_START": "1"}, "could not be started"),
    ],
)
def test_a_gpu_without_room_is_passed_over_by_default_and_where_the_cpu_is_named(
    gpu: dict[str, str], tiny: str, trouble: dict[str, str], reason: str
) -> None:
    code = "answer([run(), run(backend='gpu,cpu'), attempt(lambda: run(backend='gpu')), run(backend='cpu')])"
    found = child(RUN + code, tiny, env={**gpu, **trouble})
    for model in found[:2]:
        assert model["devices"] == ["CPU"]
        assert model["tokens"] == found[3]["tokens"]
        ((wanted, used, why),) = model["fallbacks"]
        assert (wanted, used) == ("FakeGPU0", "CPU")
        assert reason in why
    expected = "DeviceError" if "FAKE_GPU_NO_START" in trouble else "ComputeMemoryError"
    assert expected in found[2]["kinds"]
    assert reason in found[2]["error"]
    assert found[3]["fallbacks"] == []


def test_a_second_gpu_takes_over_when_it_was_named(gpu: dict[str, str], tiny: str) -> None:
    code = """
first = whispyx.Model(path, backend="fakegpu:0")
answer([run(backend="fakegpu:0,fakegpu:1,cpu"), list(first.devices)])
"""
    size = Path(tiny).stat().st_size
    env = {**gpu, "FAKE_GPU_DEVICES": "2", "FAKE_GPU_MEMORY": str(60_000_000 + size)}
    found, first = child(RUN + code, tiny, env=env)
    assert first == ["FakeGPU0", "CPU"]
    assert found["devices"][0] in ("FakeGPU0", "FakeGPU1")


def test_beams_without_room_are_an_error_and_the_model_stays_usable(gpu: dict[str, str], tiny: str) -> None:
    code = """
model = whispyx.Model(path, backend="gpu")
def work(beams):
    return [[t.id for t in s.tokens] for s in model.transcribe(noise, beam_size=beams, **ONE_PASS).segments]
first = work(1)
answer([first, attempt(lambda: work(8)), work(1)])
"""
    # The smallest memory in which a greedy job runs, to within 1 %, found by trying.
    low, high = 1_000_000, 400_000_000
    alone = "answer(attempt(lambda: run(backend='gpu')['devices']))"
    while high > low * 1.01:
        middle = (low + high) // 2
        found = child(RUN + alone, tiny, env={**gpu, "FAKE_GPU_MEMORY": str(middle)})
        low, high = (low, middle) if found == ["FakeGPU0", "CPU"] else (middle, high)
    first, beams, again = child(code, tiny, env={**gpu, "FAKE_GPU_MEMORY": str(high)})
    assert "ComputeMemoryError" in beams["kinds"]
    assert again == first


@pytest.mark.parametrize(
    "refused",
    ["FLASH_ATTN_EXT", "UNARY", "GET_ROWS", "SET_ROWS", "CPY", "NORM", "SOFT_MAX", "IM2COL", "VIEW", "NONE", "ADD,MUL"],
)
def test_what_the_gpu_does_not_compute_runs_on_the_cpu(gpu: dict[str, str], tiny: str, refused: str) -> None:
    code = "answer([run(), run(flash_attn=False), run(backend='cpu'), run(backend='cpu', flash_attn=False)])"
    found = child(RUN + code, tiny, env={**gpu, "FAKE_GPU_REFUSES": refused})
    assert found[0]["tokens"] == found[2]["tokens"]
    assert found[1]["tokens"] == found[3]["tokens"]
    for stage in found[0]["placement"].values():
        for operation in refused.split(","):
            assert operation not in stage.get("FakeGPU0", {})


def test_weights_that_the_gpu_cannot_multiply_by_lie_in_the_memory_of_the_cpu(gpu: dict[str, str], tiny: str) -> None:
    found = child(RUN + "answer([run(), run(backend='cpu')])", tiny, env={**gpu, "FAKE_GPU_REFUSES": "f16"})
    assert found[0]["tokens"] == found[1]["tokens"]
    ((wanted, used, why),) = found[0]["fallbacks"]
    assert (wanted, used) == ("FakeGPU0", "CPU")
    assert "does not multiply by f16" in why


@pytest.mark.parametrize("graphs", [0, 1, 2, 3, 5])
def test_a_gpu_that_fails_is_a_typed_error_and_the_process_goes_on(gpu: dict[str, str], tiny: str, graphs: int) -> None:
    code = "answer([attempt(run), attempt(run), run(backend='cpu')['devices']])"
    found = child(RUN + code, tiny, env={**gpu, "FAKE_GPU_FAIL_AFTER": str(graphs)})
    for failed in found[:2]:
        assert "ComputeError" in failed["kinds"]
        assert "failed" in failed["error"]
    assert found[2] == ["CPU"]


def test_the_low_level_falls_back_too_and_the_system_info_says_why(gpu: dict[str, str], tiny: str) -> None:
    code = """
from whispyx import capi
params = capi.whisper_context_default_params()
ctx = capi.whisper_init_from_file_with_params(path, params)
answer([ctx is not None, capi.whisper_print_system_info()])
"""
    made, told = child(code, tiny, env={**gpu, "FAKE_GPU_MEMORY": "100000"})
    assert made
    assert "FALLBACK : CPU instead of FakeGPU0: no memory for the weights" in told
    # What was asked for by name alone is not replaced.
    made, told = child(code, tiny, env={**gpu, "FAKE_GPU_MEMORY": "100000", "WHISPYX_BACKEND": "gpu"})
    assert not made
    assert "FALLBACK" not in told


def test_a_plugin_that_cannot_be_used_is_named_by_the_model(compiler: Compiler, tmp_path: Path, tiny: str) -> None:
    compiler.odd(tmp_path, "-DODD_SCORE=0", name="vulkan")
    compiler.odd(tmp_path, name="blas")
    env = {"WHISPYX_BACKEND_PATH": str(tmp_path), "WHISPYX_BACKEND_EXCLUDE": "blas"}
    code = """
from whispyx import capi
answer([run(), whispyx.Model(path, "cpu").devices.fallbacks, whispyx.Model(path).info.to_dict()["fallbacks"],
        capi.whisper_print_system_info()])
"""
    default, chosen, listed, told = child(RUN + code, tiny, env=env)
    assert default["fallbacks"] == [["vulkan", "CPU", "it does not support this machine (its score is 0)"]]
    assert chosen == []
    assert listed == ["CPU instead of vulkan: it does not support this machine (its score is 0)"]
    assert "FALLBACK : CPU instead of vulkan: it does not support" in told
    assert f"EXCLUDED : {tmp_path}/libggml-blas.so" in told
