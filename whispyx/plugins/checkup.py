"""What `doctor` does in child processes: look around; load one plugin and try its devices; load all, as a program."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from whispyx.errors import WhispyxError
from whispyx.plugins import discovery, load
from whispyx.plugins.bounds import bound_of, nmse
from whispyx.plugins.cases import Case, cases, inputs_of
from whispyx.plugins.children import Message, Tell
from whispyx.plugins.limits import Limits

Job = tuple[Case, Any]

__all__ = ["JOBS", "look_around", "try_all", "try_plugin"]

JOBS: Final = (
    "ADD/f32/tiny/same,n=5",
    "NORM/f32/tiny/n=5",
    "GELU/f32/tiny/n=5",
    "SOFT_MAX/f32/tiny/masked,n=5x448",
    "GET_ROWS/q5_0/tiny/vocab=2000",
    "SET_ROWS/f16/tiny/n=5",
    "CPY/f16/base/keys by head,n=75",
    "conv/f16/base/first,n=25",
    "MUL_MAT/f32/tiny/attention 384->384,n=40",
    "MUL_MAT/f32/vad/spectrum",
    "MUL_MAT/f16/tiny/attention 384->384,n=40",
    "MUL_MAT/q8_0/tiny/attention 384->384,n=5",
    "MUL_MAT/q5_0/tiny/attention 384->384,n=40",
    "FLASH_ATTN_EXT/f16/tiny/self,n=5x256",
    "mlp/f16/tiny/n=5",
)
"""Small graphs of each kind: enough to see that a device computes and that it tells the truth."""


def look_around(request: Message, tell: Tell) -> None:
    """Tell which plugin files there are. It asks other packages, so it may fail in their ways."""
    limits = Limits.from_env()
    found = discovery.discover(None)
    for candidate in found.candidates:
        tell({"candidate": {**asdict(candidate), "excluded": limits.against(candidate)}})
    tell({"searched": found.searched, "problems": [asdict(problem) for problem in found.problems]})


def try_plugin(request: Message, tell: Tell) -> None:
    """Load one file, and let each of its devices do the jobs; what is done next is told before it is done."""
    path = request["path"]
    tell({"stage": "being loaded"})
    found = load([path])
    (record,) = [r for r in found.found if r.path == path and r.status == "loaded"]
    tell({"score": record.score, "version": record.version, "notes": record.notes})
    from whispyx._core.devices import cpu_device, devices

    table = {case.name: case for case in cases()}
    jobs = [(table[name], inputs_of(table[name])) for name in JOBS]
    mine = [device for device in devices() if device.plugin_path == path]
    expected = _expected(jobs, request["threads"]) if any(d is not cpu_device() for d in mine) else None
    for device in mine:
        tell({"stage": f"telling about its device {device.name}"})
        free, total = device.memory()
        tell(
            {
                "device": device.name,
                "kind": device.kind,
                "index": device.index,
                "description": device.description,
                "memory_free": free,
                "memory_total": total,
                "features": device.features(),
            }
        )
        _try_device(device, jobs, expected if device is not cpu_device() else None, request["threads"], tell)
    tell({"stage": "being left at the end of the process"})


def _expected(jobs: list[Job], threads: int) -> list[Any]:
    """Return what the CPU of this process makes of the jobs."""
    from whispyx._core.devices import cpu_device
    from whispyx._core.optest import OpTester

    tester = OpTester(cpu_device(), threads)
    try:
        return [tester.run(inputs, case.steps) for case, inputs in jobs]
    finally:
        tester.close()


def _try_device(device: Any, jobs: list[Job], expected: list[Any] | None, threads: int, tell: Tell) -> None:
    """Compare each job with the CPU; the CPU itself with float64."""
    from whispyx._core.optest import OpTester
    from whispyx.plugins import exact

    tell({"stage": f"starting its device {device.name}"})
    try:
        tester = OpTester(device, threads)
    except WhispyxError as error:
        tell({"fault": str(error)})
        return
    for i, (case, inputs) in enumerate(jobs):
        tell({"stage": f"computing {case.name} on its device {device.name}"})
        try:
            values = tester.run(inputs, case.steps)
        except WhispyxError as error:
            tell({"job": case.name, "fault": str(error)})
            continue
        if isinstance(values, str):
            tell({"job": case.name, "unsupported": values})
            continue
        truth = exact.compute(case, inputs) if expected is None else expected[i]
        distance = min(nmse(values, truth), 1e30)
        tell({"job": case.name, "nmse": distance, "bound": bound_of(case).limit})
    tester.close()


def try_all(request: Message, tell: Tell) -> None:
    """Load what a program would load here, and tell what it would compute on."""
    now = load()
    from whispyx._core.devices import devices, select

    names = now.selected if now.selected is not None else tuple(device.name for device in select())
    tell(
        {
            "devices": names,
            "selected": now.selected is not None,
            "all": [device.name for device in devices()],
            "loaded": [record.path for record in now.loaded],
            "fallbacks": [str(fallback) for fallback in now.fallbacks],
        }
    )
