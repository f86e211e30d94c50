"""`whispyx backends test`: every operation that Whisper needs, on a device, against the plainest CPU variant."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from ..constants import MAX_THREADS
from ..errors import BackendError, BackendUnsupportedError, ParamsError
from ..plugins import conformance
from ..plugins.bounds import BOUNDS
from ..plugins.cases import Case
from .console import Console, columns
from .status import Status, status_of

__all__ = ["add_arguments", "run_test"]

SHOWN = 20  # faults in full; the rest are counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the verb its arguments."""
    parser.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="plugin, device of it (vulkan:1), CPU variant (cpu-haswell), absolute path of a plugin, or all",
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        dest="patterns",
        metavar="PATTERN",
        help="only cases of this name, such as 'MUL_MAT/q5_0/*'; may be given several times",
    )
    parser.add_argument("-t", "--threads", type=int, metavar="N", help="threads of devices that are processors")
    parser.add_argument(
        "--timeout",
        type=float,
        default=conformance.CASE_SECONDS,
        metavar="SECONDS",
        help="how long one case may take (%(default)g)",
    )
    parser.add_argument("--check-referee", action="store_true", help="hold the referee to float64 in every case")
    parser.add_argument("--json", action="store_true", help="as JSON, with every case")


def run_test(args: argparse.Namespace, console: Console) -> int:
    """Test devices; 0 when none of them is wrong anywhere."""
    threads = conformance.default_threads() if args.threads is None else args.threads
    if not 1 <= threads <= MAX_THREADS:
        raise ParamsError(f"--threads is {threads}; 1 to {MAX_THREADS} are possible")
    if not args.timeout > 0:
        raise ParamsError(f"--timeout is {args.timeout:g}; it must be more than 0 seconds")
    which = conformance.chosen(args.patterns)
    wanted = [target for name in dict.fromkeys(args.names) for target in conformance.targets(name)]
    tested: list[conformance.DeviceResult] = []
    refused: list[tuple[conformance.Target, BackendError]] = []
    found: list[conformance.Found] = []
    referee: conformance.Referee | None = None
    for target in wanted:
        try:
            found.append(conformance.find(target, args.timeout))
        except BackendError as error:  # one that cannot be loaded does not stop the others
            refused.append((target, error))
    if found:
        referee = _test(found, which, threads, args, console, tested, refused)
    if args.json:
        console.line(json.dumps(_as_dict(referee, tested, refused), indent=2))
    else:
        every = getattr(args, "verbose", 0) > 0
        about = _about(referee) if referee is not None else ()
        for line in (*about, *(line for device in tested for line in _lines(device, every))):
            console.line(line)
    status = Status.OK if all(device.ok for device in tested) else Status.FAILED
    for target, reason in refused:
        console.error(reason, target.name)
        # Of all plugins that are here, some may be for other machines.
        if not ("all" in args.names and isinstance(reason, BackendUnsupportedError)):
            status = status_of(reason)
    return status


def _test(
    found: Iterable[conformance.Found],
    which: Iterable[Case],
    threads: int,
    args: argparse.Namespace,
    console: Console,
    tested: list[conformance.DeviceResult],
    refused: list[tuple[conformance.Target, BackendError]],
) -> conformance.Referee:
    """Have the referee and then the devices compute; what comes of it goes into the lists."""
    with console.percent_bar("conformance") as bar:

        def watch(who: str, done: int, total: int) -> None:
            if bar is not None:
                bar(100 * done // total)

        check = "all" if args.check_referee else "some"
        with conformance.referee(which, threads, args.timeout, watch, check) as referee:
            for one in found:
                try:
                    tested += conformance.run(one, referee, threads, args.timeout, watch)
                except BackendError as error:
                    refused.append((one.target, error))
    return referee


def _as_dict(
    referee: conformance.Referee | None,
    tested: Iterable[conformance.DeviceResult],
    refused: Iterable[tuple[conformance.Target, BackendError]],
) -> dict[str, Any]:
    return {
        "referee": referee and {"path": referee.path, "cases": len(referee.cases), "errors": referee.errors},
        "bounds": [{"name": b.name, "limit": b.limit, "reason": b.reason} for b in BOUNDS.values()],
        "devices": [device.as_dict() for device in tested],
        "refused": [
            {"target": target.name, "error": type(error).__name__, "text": str(error)} for target, error in refused
        ],
    }


def _about(referee: conformance.Referee) -> Iterable[str]:
    yield f"referee: {referee.path}"
    if referee.errors:
        worst = max(referee.errors, key=lambda name: referee.errors[name])
        yield (
            f"  itself held to float64 in {len(referee.errors)} of {len(referee.cases)} cases; "
            f"its largest error is {referee.errors[worst]:.1e} in {worst}"
        )


def _lines(device: conformance.DeviceResult, every: bool) -> Iterable[str]:
    yield ""
    yield f"{device.target}: device {device.device} ({device.kind}, {device.description})"
    yield f"  {device.path}"
    yield from (f"  note: {note}" for note in device.notes)
    yield from columns(_rows(device, every))
    bad = [result for result in device.results if not result.ok]
    for result in bad[:SHOWN]:
        error = "" if result.nmse is None else f", error {result.nmse:.1e} (allowed: {result.bound:.0e})"
        yield f"{result.outcome}: {result.name}{error}: {result.reason}"
    if len(bad) > SHOWN:
        yield f"and {len(bad) - SHOWN} more (--json lists all)"
    fine = sum(result.outcome == conformance.OK for result in device.results)
    other = sum(result.outcome == conformance.UNSUPPORTED for result in device.results)
    yield f"{device.device}: {fine} cases right, {other} not supported (another device computes them), {len(bad)} wrong"


def _rows(device: conformance.DeviceResult, every: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("operation", "type", "right", "unsupported", "wrong", "largest error", "allowed")]
    groups: dict[tuple[str, ...], list[conformance.CaseResult]] = {}
    for result in device.results:
        key = (result.name, result.type) if every else (result.op, result.type)
        groups.setdefault(key, []).append(result)
    for (name, type), results in groups.items():
        right, other = (
            sum(result.outcome == outcome for result in results)
            for outcome in (conformance.OK, conformance.UNSUPPORTED)
        )
        errors = [result.nmse for result in results if result.nmse is not None]
        rows.append(
            (
                name,
                type,
                str(right),
                str(other),
                str(len(results) - right - other),
                f"{max(errors):.1e}" if errors else "-",
                f"{results[0].bound:.0e}",
            )
        )
    return rows
