"""`whispyx devices`, `fetch`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..errors import ModelError
from .console import Console, columns
from .status import Status, status_of

if TYPE_CHECKING:
    from .._core.devices import Device

__all__ = ["run_devices", "run_fetch"]


@dataclass(frozen=True, slots=True)
class _DeviceRow:
    name: str
    kind: str
    backend: str
    description: str
    memory_free: int
    memory_total: int
    selected: bool

    @classmethod
    def of(cls, device: Device, selected: tuple[str, ...] | None) -> _DeviceRow:
        free, total = device.memory()
        return cls(
            name=device.name,
            kind=device.kind,
            backend=f"{device.backend}:{device.index}",
            description=device.description,
            memory_free=free,
            memory_total=total,
            selected=selected is None or device.name in selected,
        )


def run_devices(args: argparse.Namespace, console: Console) -> int:
    """Load the backends and list their devices; those a job takes by default, or by the selection, are marked."""
    from .._core.devices import devices
    from ..plugins import load

    selected = load(args.backend).selected
    rows = [_DeviceRow.of(device, selected) for device in devices()]
    if args.json:
        console.line(json.dumps({"devices": [asdict(row) for row in rows]}, indent=2))
        return Status.OK
    table = [("device", "kind", "backend", "memory", "description")]
    for row in rows:
        memory = f"{row.memory_total / 2**30:.1f} GiB" if row.memory_total else "-"
        note = "" if row.selected else " (not selected)"
        table.append((row.name, row.kind, row.backend, memory, row.description + note))
    for line in columns(table):
        console.line(line)
    console.line("\npython -m whispyx.plugins tells which plugins were found and refused, and why")
    return Status.OK


def run_fetch(args: argparse.Namespace, console: Console) -> int:
    """Have models in the cache and print where they are; one that cannot be had does not stop the others."""
    from ..models import resolve

    status = Status.OK
    for name in args.models:
        try:
            with console.byte_bar(name) as progress:
                path = resolve(name, progress=progress)
        except ModelError as error:
            console.error(error)
            status = status_of(error)
        else:
            console.line(str(path))
    return status
