"""The Vulkan plugin on whatever Vulkan device there is, Mesa's software driver included.

Compiling it takes long, so it is not built here: it must lie in a folder of WHISPYX_TEST_PLUGINS or among the user's
own plugins (`whispyx backends build vulkan`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import data
from tests.oracle.tiny_model import TinyModel
from tests.plugins.toolkit import ROOT, SOURCES, VARIABLES, Compiler
from whispyx.plugins import discovery

SECONDS = 240
SPEECH_SECONDS = 900  # a software driver needs minutes for one transcription
NOT_OURS = ("lavapipe is not a conformant vulkan implementation",)  # what Mesa itself writes to standard error

FAULTY = """
import ctypes, json, sys
faults = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
def fault(name="", after=0, result=0):
    faults.vulkan_fault(name.encode(), after, result)
OUT_OF_MEMORY, LOST, INITIALIZATION = -2, -4, -3
"""

PREAMBLE = """
import json, os, sys
import numpy as np
import whispyx

noise = np.random.default_rng(1).normal(0, 0.1, 16000).astype(np.float32)
path = sys.argv[2]

def attempt(call):
    try:
        call()
    except whispyx.WhispyxError as error:
        return [type(error).__name__, str(error)]
    return ["fine", ""]

def recognise(model):
    return model.transcribe(noise, temperature_inc=0.0, max_tokens=8)

def answer(value):
    print(json.dumps(value))
"""


def folder_of_the_plugin() -> Path:
    file = "libggml-vulkan.so"
    named = os.environ.get("WHISPYX_TEST_PLUGINS", "")
    places = [Path(named), Path(named) / "vulkan"] if named else []
    places += [Path(folder) for folder in os.environ.get("WHISPYX_BACKEND_PATH", "").split(os.pathsep) if folder]
    places.append(Path(discovery.user_folder()))
    for place in places:
        if (place / file).is_file():
            return place
    pytest.skip(f"no {file} in {', '.join(map(str, places))}; 'whispyx backends build vulkan' makes one")


def child(code: str, *arguments: str, env: dict[str, str] | None = None, seconds: float = SECONDS) -> Any:
    """Run `code` in a child that may use the plugin; return what it answers."""
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment["WHISPYX_BACKEND_PATH"] = str(folder_of_the_plugin())
    # Mesa's software driver damages its own memory with products in f16.
    environment.update({"GGML_VK_VISIBLE_DEVICES": "0", "GGML_VK_DISABLE_F16": "1", **(env or {})})
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, env=environment, timeout=seconds, check=False,
    )  # fmt: skip
    if done.returncode < 0:
        pytest.fail(f"the child died of {signal.Signals(-done.returncode).name}\n{done.stdout}{done.stderr[-4000:]}")
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stderr.splitlines() if line and not any(text in line for text in NOT_OURS)]
    assert not printed, "the library printed something"
    return json.loads(done.stdout.splitlines()[-1])


LOAD = """
import json
from whispyx import plugins
from whispyx.errors import WhispyxError
try:
    report = plugins.load("vulkan")
    print(json.dumps(["loaded", list(report.selected)]))
except WhispyxError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.fixture(scope="module")
def device() -> str:
    """Name of the Vulkan device; skips where there is none."""
    status, found = child(LOAD)
    if status != "loaded":
        pytest.skip(f"the plugin does not run here: {found}")
    return str(found[0])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(TinyModel().write(tmp_path_factory.mktemp("vulkan") / "tiny.bin"))


@pytest.fixture(scope="module")
def faults(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library in front of the Vulkan loader that makes calls fail."""
    path = tmp_path_factory.mktemp("faults") / "libfaults.so"
    command = [compiler.command, "-std=c11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, str(SOURCES / "vulkan_faults.c"), "-o", str(path), "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "vulkan/vulkan.h" in done.stderr:
        pytest.skip("no headers of Vulkan (Debian: libvulkan-dev)")
    assert done.returncode == 0, done.stderr
    return str(path)


def test_it_is_a_gpu_and_the_cpu_stands_behind_it(device: str, tiny: str) -> None:
    code = "model = whispyx.Model(path, backend='vulkan')\nanswer(list(model.devices))"
    assert child(PREAMBLE + code, "-", tiny) == [device, "CPU"]


def test_a_device_number_that_does_not_exist_is_refused_without_a_word_on_standard_error() -> None:
    status, why = child(LOAD, env={"GGML_VK_VISIBLE_DEVICES": "77"})
    assert status == "BackendLoadError"
    assert "vulkan" in why


def test_without_a_driver_it_says_that_there_is_no_device() -> None:
    none = {"VK_ICD_FILENAMES": "/nonexistent.json", "VK_DRIVER_FILES": "/nonexistent.json"}
    environment = {"GGML_VK_VISIBLE_DEVICES": "", **none}
    status, _ = child(LOAD, env=environment)
    assert status == "BackendLoadError"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("after", [0, 1, 3, 8])
def test_a_device_that_is_lost_while_it_computes_is_an_error_and_the_process_goes_on(
    faults: str, tiny: str, after: int
) -> None:
    code = f"""
model = whispyx.Model(path, backend="vulkan")
found = [attempt(lambda: recognise(model))]
fault("vkQueueSubmit", {after}, LOST)
found.append(attempt(lambda: recognise(model)))
fault()
found.append(attempt(lambda: recognise(model)))
model.close()
found.append(attempt(lambda: recognise(whispyx.Model(path, backend="cpu"))))
answer(found)
"""
    before, lost, later, cpu = child(FAULTY + PREAMBLE + code, faults, tiny)
    assert before[0] == "fine"
    assert lost[0] in ("DeviceError", "ComputeError")
    assert "Vulkan" in lost[1]
    assert later[0] in ("DeviceError", "ComputeError"), "a lost device stays lost"
    assert cpu[0] == "fine"


@pytest.mark.usefixtures("device")
def test_a_device_that_is_lost_before_the_weights_arrive_is_an_error(faults: str, tiny: str) -> None:
    code = """
fault("vkQueueSubmit", 0, LOST)
answer(attempt(lambda: recognise(whispyx.Model(path, backend="vulkan"))))
"""
    kind, why = child(FAULTY + PREAMBLE + code, faults, tiny)
    assert kind in ("DeviceError", "ComputeError")
    assert "Vulkan" in why


@pytest.mark.usefixtures("device")
def test_memory_that_runs_out_at_any_moment_is_an_error_and_a_later_job_works(faults: str, tiny: str) -> None:
    code = """
found = []
for after in range(40):
    fault("vkAllocateMemory", after, OUT_OF_MEMORY)
    def job():
        with whispyx.Model(path, backend="vulkan") as model:
            recognise(model)
    found.append(attempt(job))
    fault()
    if found[-1][0] == "fine":
        break
found.append(attempt(job))
answer(found)
"""
    *failed, last, clean = child(FAULTY + PREAMBLE + code, faults, tiny)
    assert len(failed) >= 3, "weights, cache and scratch are at least three allocations"
    assert {kind for kind, _ in failed} <= {"ComputeMemoryError", "DeviceError", "ComputeError"}
    assert failed[0][0] == "ComputeMemoryError"
    assert last[0] == clean[0] == "fine"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("function", ["vkCreateDevice", "vkCreateComputePipelines"])
def test_a_device_that_does_not_start_or_compile_is_an_error(faults: str, tiny: str, function: str) -> None:
    code = f"""
def job():
    with whispyx.Model(path, backend="vulkan") as model:
        recognise(model)
fault("{function}", 0, INITIALIZATION)
found = [attempt(job)]
fault()
found.append(attempt(job))
answer(found)
"""
    failed, later = child(FAULTY + PREAMBLE + code, faults, tiny)
    # A device that cannot be started can do nothing, so the model may be refused before anything is asked of it.
    assert failed[0] in ("DeviceError", "ComputeError", "BackendUnsupportedError")
    assert later[0] == "fine", "nothing half-made is left behind"


@pytest.mark.usefixtures("device")
def test_speech_is_recognised_as_on_the_cpu() -> None:
    model, audio = data.or_skip(data.model_file, "tiny.en"), data.or_skip(data.jfk_wav)
    code = """
import json, sys, whispyx
texts = []
for backend in ("cpu", "vulkan"):
    with whispyx.Model(sys.argv[1], backend=backend) as model:
        found = model.transcribe(sys.argv[2], temperature_inc=0.0)
        texts.append([list(model.devices)[0], found.text.strip()])
print(json.dumps(texts))
"""
    (_, wanted), (device, text) = child(code, str(model), str(audio), seconds=SPEECH_SECONDS)
    assert device.startswith("Vulkan")
    assert text == wanted != ""
