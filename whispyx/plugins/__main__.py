"""``python -m whispyx.plugins``: what was found, loaded, refused, and why.

Exit code 0 when a CPU device is usable and everything that was asked for could be loaded, else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from whispyx._core.devices import devices
from whispyx._stdio import fill_closed, keep_stdout
from whispyx.errors import WhispyxError
from whispyx.plugins import PluginRecord, Report, kernels, load, report

COLUMNS = ("plugin", "tag", "status", "score", "ggml", "devices", "from")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m whispyx.plugins",
        description="Load the compute backends and show which were found, loaded and refused, and why.",
        epilog="Exit code: 0 when a CPU device is usable and everything asked for could be loaded, else 1.",
    )
    parser.add_argument(
        "--backend",
        metavar="LIST",
        help="plugins, devices or files to load, as in WHISPYX_BACKEND (default: that variable)",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    arguments = parser.parse_args(argv)
    failure: str | None = None
    try:
        load(arguments.backend)
    except WhispyxError as error:
        failure = str(error)
    now = report()
    usable = failure is None and any(device.kind == "CPU" for device in devices())
    if arguments.json:
        print(json.dumps(as_dict(now, usable, failure), indent=2))
    else:
        # Paths and device names may hold what the terminal's encoding cannot show.
        encoding = sys.stdout.encoding or "utf-8"
        print(as_text(now, usable, failure).encode(encoding, "backslashreplace").decode(encoding))
    return 0 if usable else 1


def as_dict(now: Report, usable: bool, failure: str | None) -> dict[str, Any]:
    """Return everything the table shows, for programs."""
    known = [asdict(record) for record in kernels.records()]
    found = [_device(device) for device in devices()]
    return {"usable": usable, "error": failure, **now.as_dict(), "devices": found, "kernels": known}


def _device(device: Any) -> dict[str, Any]:
    free, total = device.memory()
    return {
        "name": device.name,
        "kind": device.kind,
        "backend": device.backend,
        "index": device.index,
        "description": device.description,
        "memory_free": free,
        "memory_total": total,
        "plugin_path": device.plugin_path,
        "features": device.features(),
    }


def as_text(now: Report, usable: bool, failure: str | None) -> str:
    """Return the report as tables."""
    lines = [f"ggml {now.ggml_version} in {now.ggml_base}", "", *_plugin_lines(now.found), ""]
    lines += ["searched, in this order:", *(f"  {place}" for place in now.searched or ("(nothing)",)), ""]
    if devices():
        rows = [("device", "kind", "plugin", "memory", "description")]
        for device in devices():
            _, total = device.memory()
            memory = f"{total / 2**30:.1f} GiB" if total else "-"
            rows.append((device.name, device.kind, f"{device.backend}:{device.index}", memory, device.description))
        lines += [*_table(rows), ""]
    lines += _kernel_lines()
    if now.selected is not None:
        lines += [f"selected: {', '.join(now.selected)}", ""]
    if failure is not None:
        lines.append(f"error: {failure}")
    elif not usable:
        lines.append("error: no CPU device; without one nothing can be transcribed")
    return "\n".join(lines).rstrip("\n")


def _kernel_lines() -> list[str]:
    rows = [("kernels", "status", "score", "reason")]
    for record in kernels.records():
        status = "used" if record.used else "refused" if record.reason else "not used"
        rows.append((record.name, status, "-" if record.score is None else str(record.score), record.reason or "-"))
    return [*_table(rows), ""] if len(rows) > 1 else []


def _plugin_lines(found: Sequence[PluginRecord]) -> list[str]:
    if not found:
        return ["no plugins found"]
    rows = [COLUMNS]
    for record in found:
        rows.append(
            (
                record.name or "-",
                record.tag or "-",
                record.status,
                "-" if record.score is None else str(record.score),
                record.version or "-",
                ", ".join(record.devices) or "-",
                record.source,
            )
        )
    head, *body = _table(rows)
    lines = [head]
    for record, line in zip(found, body, strict=True):
        lines += [line, f"  {record.path}"]
        lines += [f"  {text}" for text in ((record.reason,) if record.reason else ()) + record.notes]
    return lines


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


if __name__ == "__main__":
    fill_closed()
    keep_stdout()
    sys.exit(main())
