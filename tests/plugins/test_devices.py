"""The device table of the core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.toolkit import ROOT, Compiler, ask
from whispyx._core.devices import Device, ggml_version

GPU = "-DODD_KIND=GGML_BACKEND_DEVICE_TYPE_GPU"
IGPU = "-DODD_KIND=GGML_BACKEND_DEVICE_TYPE_IGPU"


def test_without_a_plugin_the_error_says_what_to_do() -> None:
    message = ask("try:\n    table.select()\nexcept LookupError as error:\n    answer(str(error))")
    assert "whispyx.plugins.load()" in message
    assert "python -m whispyx.plugins" in message


def test_a_device_cannot_be_made_by_hand_and_a_forged_one_does_not_crash() -> None:
    with pytest.raises(TypeError, match=r"whispyx\.plugins"):
        Device()
    result = ask("""
forged = table.Device.__new__(table.Device)
caught = []
for call in (forged.memory, forged.features):
    try:
        call()
    except Exception as error:
        caught.append(type(error).__name__)
answer(caught)
""")
    assert result == ["StateError", "StateError"]


def test_a_device_cannot_be_changed_copied_or_pickled() -> None:
    result = ask("""
import copy, pickle
attempt()
cpu = table.cpu_device()
caught = []
calls = (setattr, cpu, "name", "x"), (setattr, cpu, "new", 1), (copy.copy, cpu), (pickle.dumps, cpu)
for function, *arguments in calls:
    try:
        function(*arguments)
    except (AttributeError, TypeError) as error:
        caught.append(type(error).__name__)
answer([caught, cpu is table.cpu_device()])
""")
    assert result == [["AttributeError", "AttributeError", "TypeError", "TypeError"], True]


def test_the_cpu_device_knows_its_memory_and_features() -> None:
    memory, features = ask("attempt()\ncpu = table.cpu_device()\nanswer([cpu.memory(), cpu.features()])")
    free, total = memory
    with open("/proc/meminfo") as file:
        kib = int(next(line for line in file if line.startswith("MemTotal")).split()[1])
    assert total == kib * 1024
    assert 0 < free <= total
    assert all(isinstance(value, str) for value in features.values())


def test_the_ggml_version_is_the_pinned_one() -> None:
    pin = (ROOT / "vendor" / "ggml.toml").read_text()
    assert ggml_version() in pin


def test_registering_the_same_address_twice_changes_nothing(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.odd(tmp_path)
    result = ask(
        "import ctypes\nlib = ctypes.CDLL(sys.argv[1])\nlib.ggml_backend_init.restype = ctypes.c_void_p\n"
        "address = lib.ggml_backend_init()\n"
        "first = table.register_backend(address, 'odd', sys.argv[1])\n"
        "second = table.register_backend(address, 'odd', sys.argv[1])\n"
        "answer([len(first), first[0] is second[0], len(table.devices())])",
        str(path),
    )
    assert result == [1, True, 1]


def test_registering_no_address_is_an_error() -> None:
    result = ask("try:\n    table.register_backend(0, 'x', '/x')\nexcept OSError as error:\n    answer(str(error))")
    assert "NULL" in result


@pytest.fixture
def zoo(compiler: Compiler, tmp_path: Path) -> dict[str, str]:
    """An accelerator, two dedicated GPUs and an integrated one, in an order that selection has to change."""
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Accel"', name="aaa")
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Small"', IGPU, name="bbb")
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Big"', GPU, name="ccc")
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Bigger"', GPU, name="ddd")
    return {"WHISPYX_BACKEND_PATH": str(tmp_path)}


SELECT = """
attempt()
def chosen(*arguments, **named):
    try:
        return [d.name for d in table.select(*arguments, **named)]
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ["Big", "Accel", "CPU"]),
        ("gpu_device=1", ["Bigger", "Accel", "CPU"]),
        ("gpu_device=2", ["Small", "Accel", "CPU"]),
        ("use_gpu=False", ["Accel", "CPU"]),
        ("use_gpu=False, gpu_device=9", ["Accel", "CPU"]),
        ("names=['CPU']", ["CPU"]),
        ("names=[]", ["CPU"]),
        ("names=['cpu', 'bigger']", ["Bigger", "CPU"]),
        ("names=['ddd:0', 'aaa', 'DDD', 'Bigger']", ["Bigger", "Accel", "CPU"]),
        ("names=('small', 'accel')", ["Small", "Accel", "CPU"]),
    ],
)
def test_selection_order(zoo: dict[str, str], arguments: str, expected: list[str]) -> None:
    assert ask(SELECT + f"answer(chosen({arguments}))", env=zoo) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("gpu_device=3", "BackendNotFoundError: gpu_device is 3, but there are 3 GPUs"),
        ("gpu_device=-1", "ParamsError: gpu_device is -1"),
        (
            "names=['ddd:1']",
            "BackendNotFoundError: there is no device 'ddd:1'; the devices are: CPU (cpu:0), Accel (aaa:0)",
        ),
        ("names=['nothing']", "BackendNotFoundError: there is no device 'nothing'"),
        ("names='CPU'", "ParamsError: names is a sequence"),
        ("names=[0]", "ParamsError: a device is named by a str, not by int"),
    ],
)
def test_selection_errors(zoo: dict[str, str], arguments: str, expected: str) -> None:
    assert ask(SELECT + f"answer(chosen({arguments}))", env=zoo).startswith(expected)


def test_an_integrated_gpu_stands_in_when_there_is_no_other(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="Small"', IGPU, name="bbb")
    chosen = ask(SELECT + "answer(chosen())", env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert chosen == ["Small", "CPU"]
