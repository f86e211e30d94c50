"""Every operation that Whisper needs, on a device, against a referee: the plainest variant of the CPU plugin.

The referee and the device compute in child processes of their own, since a process holds one CPU variant, and a plugin
may take its process with it. `run` judges one device; ``whispyx backends test`` and tests/plugins print and check what
it returns.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from whispyx.errors import BackendError, BackendNotFoundError, ParamsError, WhispyxError
from whispyx.plugins import discovery, exact
from whispyx.plugins.bounds import bound_of, nmse
from whispyx.plugins.cases import Case, cases, inputs_of
from whispyx.plugins.children import Ending, Message, Tell, work
from whispyx.plugins.limits import EXCLUDE_VARIABLE, VARIANT_VARIABLE

__all__ = ["CaseResult", "DeviceResult", "Found", "Referee", "Target", "find", "referee", "run", "targets"]

REFEREE: Final = "x64"
CASE_SECONDS: Final = 120.0  # for one case, or for loading the plugin and starting the device
MAX_RESTARTS: Final = 8  # of a child that a case took with it

OK: Final = "ok"
WRONG: Final = "wrong"
UNSUPPORTED: Final = "unsupported"
FAILED: Final = "failed"
CRASHED: Final = "crashed"
HUNG: Final = "hung"
NOT_RUN: Final = "not run"

Watch = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Target:
    """What shall be tested: a selection, and the CPU variant where one is meant.

    Attributes
    ----------
    name : str
        As the user wrote it.
    selection : str
        What `whispyx.plugins.load` gets.
    variant : str or None
        Which CPU variant the process shall have; None: the best one.
    """

    name: str
    selection: str
    variant: str | None = None

    @property
    def environment(self) -> dict[str, str | None]:
        """Variables of the child that tests it."""
        return {} if self.variant is None else {VARIANT_VARIABLE: self.variant}


@dataclass(frozen=True)
class Found:
    """A target that can be loaded, its devices as plain data, and what is worth knowing about loading it."""

    target: Target
    devices: tuple[Message, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseResult:
    """What became of one case.

    Attributes
    ----------
    outcome : str
        "ok"; "wrong": the error is larger than the bound; "unsupported": the device says so, and another one will
        compute it; "failed": it says yes and then fails; "crashed", "hung": the process did; "not run": too many
        processes have died before.
    nmse : float or None
        The error against the referee.
    bound : float
        The largest error allowed.
    reason : str
        Why that large, or what went wrong.
    """

    name: str
    op: str
    type: str
    outcome: str
    nmse: float | None
    bound: float
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the device."""
        return self.outcome in (OK, UNSUPPORTED)


@dataclass(frozen=True)
class DeviceResult:
    """A device and all its cases."""

    target: str
    device: str
    kind: str
    plugin: str
    path: str
    description: str
    results: tuple[CaseResult, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no case speaks against the device."""
        return all(result.ok for result in self.results)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data; an infinite error is None."""
        found = asdict(self)
        for result in found["results"]:
            if result["nmse"] is not None and not math.isfinite(result["nmse"]):
                result["nmse"] = None
        return {**found, "ok": self.ok}


@dataclass(frozen=True)
class Referee:
    """The referee's results, in files.

    Attributes
    ----------
    folder : Path
    path : str
        The plugin file that computed them.
    cases : tuple of Case
    errors : dict
        Error of the referee itself against float64, for the cases where that was computed.
    """

    folder: Path
    path: str
    cases: tuple[Case, ...]
    errors: dict[str, float]

    def file(self, case: Case) -> Path:
        """Return where a case's values are."""
        return self.folder / f"{cases().index(case)}.npy"


def chosen(patterns: Sequence[str] = ()) -> tuple[Case, ...]:
    """Return the cases whose names match one of the patterns (as file names do), or all.

    Raises
    ------
    ParamsError
        A pattern matches nothing.
    """
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases()):
            raise ParamsError(f"no case is called {pattern!r}; names look like {cases()[0].name!r}")
    return tuple(c for c in cases() if not patterns or any(fnmatchcase(c.name, p) for p in patterns))


def default_threads() -> int:
    """Return the threads that devices of the processor compute with."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min(4, len(affinity(0)) if affinity else os.cpu_count() or 1)


def targets(name: str) -> tuple[Target, ...]:
    """Return what a name given by the user means.

    Parameters
    ----------
    name : str
        A plugin, a device of it ("vulkan:1"), a CPU variant ("cpu-haswell"), the absolute path of a plugin, or "all":
        every plugin that is found, and of the CPU every variant but the referee.

    Raises
    ------
    ParamsError
        There is no such form of a name.
    """
    if name != "all":
        if name.startswith("cpu-"):
            return (Target(name, "cpu", name.removeprefix("cpu-")),)
        return (Target(name, name),)
    found = discovery.discover(None)
    names = [c.name for c in found.candidates if c.name != "cpu"]
    variants = [c.tag for c in found.candidates if c.name == "cpu" and c.tag and c.tag != REFEREE]
    cpu = [Target(f"cpu-{tag}", "cpu", tag) for tag in dict.fromkeys(variants)] or [Target("cpu", "cpu")]
    return (*cpu, *(Target(other, other) for other in dict.fromkeys(names)))


@contextmanager
def referee(
    which: Iterable[Case],
    n_threads: int,
    seconds: float = CASE_SECONDS,
    watch: Watch | None = None,
    check: str = "some",
) -> Iterator[Referee]:
    """Let the referee compute, and keep its results until the block is left.

    Parameters
    ----------
    which : iterable of Case
    n_threads : int
    seconds : float
        Limit for each case.
    watch : callable, optional
        Called with "referee", cases done and cases in all.
    check : {"some", "all"}
        For how many cases the referee itself is held to float64: those of the smallest models, or all.

    Raises
    ------
    BackendError
        There is no referee, or it is wrong itself.
    """
    wanted = tuple(which)
    plain = any(c.name == "cpu" and c.tag == REFEREE for c in discovery.discover(frozenset({"cpu"})).candidates)
    with tempfile.TemporaryDirectory(prefix="whispyx-conformance-") as name:
        folder = Path(name)
        request = {"folder": name, "cases": [c.name for c in wanted], "threads": n_threads, "check": check}
        environment = {VARIANT_VARIABLE: REFEREE if plain else None, EXCLUDE_VARIABLE: None}
        path, wrong = "", {}
        for message in work("whispyx.plugins.conformance:_referee_child", request, seconds, environment):
            if isinstance(message, Ending):
                if message.kind not in ("done", "late crash"):
                    raise BackendError(
                        f"the referee, the CPU plugin, cannot compute: {message.text}; {message.printed}"
                    )
            elif "path" in message:
                path = message["path"]
            elif "done" in message:
                if message["nmse"] is not None:
                    wrong[message["case"]] = message["nmse"]
                if watch is not None:
                    watch("referee", message["done"], len(wanted))
        by_name = {case.name: case for case in wanted}
        for case_name, error in wrong.items():
            if not error <= bound_of(by_name[case_name]).limit:
                raise BackendError(f"the referee ({path}) itself is wrong in {case_name}: its error is {error:.1e}")
        yield Referee(folder, path, wanted, wrong)


def _referee_child(request: Message, tell: Tell) -> None:
    from whispyx._core.devices import cpu_device
    from whispyx._core.optest import OpTester
    from whispyx.plugins import load

    load("cpu")
    device = cpu_device()
    tell({"path": device.plugin_path})
    tester = OpTester(device, request["threads"])
    table = {case.name: (i, case) for i, case in enumerate(cases())}
    for done, name in enumerate(request["cases"], 1):
        index, case = table[name]
        inputs = inputs_of(case)
        values = tester.run(inputs, case.steps)
        if isinstance(values, str):
            raise BackendError(f"the CPU does not support {values} of {name}")
        np.save(Path(request["folder"]) / f"{index}.npy", values)
        error = nmse(values, exact.compute(case, inputs)) if request["check"] == "all" or _small(case) else None
        tell({"case": name, "done": done, "nmse": error})
    tester.close()


def _small(case: Case) -> bool:
    return case.size in ("tiny", "vad") or (case.type.endswith("_K") and case.size == "base")


def find(target: Target, seconds: float = CASE_SECONDS) -> Found:
    """Load a target in a child and return its devices: of a plugin that is named alone, all.

    Raises
    ------
    BackendError
        It cannot be loaded; of the class that loading it raises, where it raises.
    """
    if target.variant is not None:
        _require_variant(target.variant)
    devices: list[Message] = []
    notes: tuple[str, ...] = ()
    request = {"selection": target.selection}
    for message in work("whispyx.plugins.conformance:_devices_child", request, seconds, target.environment):
        if not isinstance(message, Ending):
            devices.append(message)
        elif message.kind == "late crash":
            notes = (f"{message.text}, after only loading the plugin",)
        elif message.kind != "done":
            raise message.as_error(f"loading {target.name!r}")
    return Found(target, tuple(devices), notes)


def _require_variant(wanted: str) -> None:
    """Raise unless a CPU plugin of that variant is found."""
    tags = {c.tag for c in discovery.discover(frozenset({"cpu"})).candidates if c.name == "cpu" and c.tag}
    if wanted.lower() not in {tag.lower() for tag in tags}:
        known = ", ".join(f"cpu-{tag}" for tag in sorted(tags)) or "none"
        raise BackendNotFoundError(f"the CPU variant {wanted!r} is not installed; there are: {known}")


def run(
    found: Found, against: Referee, n_threads: int, seconds: float = CASE_SECONDS, watch: Watch | None = None
) -> tuple[DeviceResult, ...]:
    """Run the referee's cases on every device that was found.

    Raises
    ------
    BackendError
        A device does not start.
    """
    return tuple(_run_device(found, device, against, n_threads, seconds, watch) for device in found.devices)


def _devices_child(request: Message, tell: Tell) -> None:
    from whispyx._core.devices import devices
    from whispyx.plugins import load

    selection = request["selection"]
    selected = load([selection]).selected
    assert selected is not None
    table = {device.name: device for device in devices()}
    first = table[selected[0]]
    # A plugin that is named alone means all its devices, anything else one.
    alone = first.backend == selection.casefold() or selection == first.plugin_path
    for device in devices():
        if device is first or (alone and device.backend == first.backend):
            tell(
                {
                    "device": device.name,
                    "kind": device.kind,
                    "plugin": device.backend,
                    "path": device.plugin_path,
                    "description": device.description,
                }
            )


def _run_device(
    found: Found, device: Message, against: Referee, n_threads: int, seconds: float, watch: Watch | None
) -> DeviceResult:
    target, notes = found.target, found.notes
    results: dict[str, CaseResult] = {}
    left = list(against.cases)
    restarts = 0
    while left:
        request = {
            "selection": target.selection,
            "device": device["device"],
            "threads": n_threads,
            "cases": [(case.name, str(against.file(case))) for case in left],
        }
        current: Case | None = None
        for message in work("whispyx.plugins.conformance:_device_child", request, seconds, target.environment):
            if isinstance(message, Ending):
                if message.kind == "late crash" and f"{message.text}, after the tests" not in notes:
                    notes += (f"{message.text}, after the tests",)
                elif message.kind in ("signal", "exit", "hang", "error"):
                    if current is None:
                        raise message.as_error(f"loading {target.name!r}")
                    results[current.name] = _died(current, message)
                    left.remove(current)
            elif "begin" in message:
                current = left[0]
                assert current.name == message["begin"]
            else:
                assert current is not None
                results[current.name] = _judged(current, message)
                left.remove(current)
                current = None
                if watch is not None:
                    watch(device["device"], len(results), len(against.cases))
        restarts += 1
        if left and restarts > MAX_RESTARTS:
            reason = f"{restarts} processes have died before it"
            results.update({case.name: _result(case, NOT_RUN, None, reason) for case in left})
            break
    return DeviceResult(
        target=target.name,
        device=device["device"],
        kind=device["kind"],
        plugin=device["plugin"],
        path=device["path"],
        description=device["description"],
        results=tuple(results[case.name] for case in against.cases),
        notes=notes,
    )


def _device_child(request: Message, tell: Tell) -> None:
    from whispyx._core.devices import devices
    from whispyx._core.optest import OpTester
    from whispyx.plugins import load

    load([request["selection"]])
    (device,) = [device for device in devices() if device.name == request["device"]]
    tester = OpTester(device, request["threads"])
    table = {case.name: case for case in cases()}
    for name, file in request["cases"]:
        tell({"begin": name})
        case = table[name]
        try:
            values = tester.run(inputs_of(case), case.steps)
        except WhispyxError as error:
            tell({"failed": f"{type(error).__name__}: {error}"})
            continue
        if isinstance(values, str):
            tell({"unsupported": values})
        else:
            distance = nmse(values, np.load(file))
            tell({"nmse": distance if math.isfinite(distance) else None})
    tester.close()


def _result(case: Case, outcome: str, error: float | None, reason: str) -> CaseResult:
    return CaseResult(case.name, case.op, case.type, outcome, error, bound_of(case).limit, reason)


def _judged(case: Case, message: Message) -> CaseResult:
    if "failed" in message:
        return _result(case, FAILED, None, message["failed"])
    if "unsupported" in message:
        return _result(case, UNSUPPORTED, None, f"the device does not support {message['unsupported']} like this")
    bound = bound_of(case)
    if message["nmse"] is None:
        return _result(case, WRONG, math.inf, "values are missing or not finite")
    if message["nmse"] <= bound.limit:
        return _result(case, OK, message["nmse"], bound.reason)
    return _result(case, WRONG, message["nmse"], bound.reason)


def _died(case: Case, ending: Ending) -> CaseResult:
    printed = ending.printed.splitlines()
    text = f"{ending.text}; it printed: {printed[-1]}" if printed else ending.text
    return _result(case, HUNG if ending.kind == "hang" else CRASHED, None, text)
