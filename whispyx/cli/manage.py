"""`whispyx info`, `devices`, `fetch`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..errors import ModelError
from ..model import Model
from .console import Console, columns
from .status import Status, status_of

if TYPE_CHECKING:
    from .._core.devices import Device

__all__ = ["run_devices", "run_fetch", "run_info"]


def run_info(args: argparse.Namespace, console: Console) -> int:
    """Load a model and tell what it is."""
    with console.byte_bar("model") as progress:
        model = Model(
            args.model,
            args.backend,
            flash_attn=not args.no_flash_attn,
            encoder=args.encoder,
            compute=args.compute,
            progress=progress,
        )
    with model:
        info = model.info
    if args.json:
        console.line(json.dumps(info.to_dict(), indent=2))
        return Status.OK
    spoken = f"{len(info.languages)} languages" if info.multilingual else "English only"
    rows = [
        ("name", info.name),
        ("file", info.path or "-"),
        ("type", f"{info.type}, {spoken}"),
        ("weights", f"{info.ftype}, {info.weight_bytes / 1e6:.1f} MB"),
        ("audio", f"{info.n_mels} mel bands, {info.n_audio_ctx} positions"),
        ("encoder", f"{info.n_audio_layer} layers, {info.n_audio_head} heads, {info.n_audio_state} wide"),
        ("decoder", f"{info.n_text_layer} layers, {info.n_text_head} heads, {info.n_text_state} wide"),
        ("text", f"{info.n_vocab} tokens, context of {info.n_text_ctx}"),
        ("devices", ", ".join(info.devices)),
        ("compute", info.compute if info.kernels is None else f"{info.compute} (kernels for {info.kernels})"),
        *(("not used", str(fallback)) for fallback in info.devices.fallbacks),
        ("encodes", info.encoder or "the model itself"),
        ("attention", "flash" if info.flash_attn else "plain"),
        ("load time", f"{info.load_ms:.0f} ms"),
    ]
    for name, value in rows:
        console.line(f"{name:10} {value}")
    return Status.OK


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
