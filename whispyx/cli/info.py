"""`whispyx info`: what a model is, by its headers, or loaded."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ..errors import ParamsError
from .console import Console, printable
from .status import Status

if TYPE_CHECKING:
    from ..conversion import ModelDescription

__all__ = ["add_arguments", "run_info"]

_HEADS_SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `whispyx info` its own arguments."""
    parser.add_argument("model", metavar="MODEL", help="model name, file or folder, in any format that can be read")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--hash", action="store_true", help="compute the SHA-256 of its files")
    parser.add_argument(
        "--load", action="store_true", help="load it, and tell what it computes on; so do the options below"
    )


def run_info(args: argparse.Namespace, console: Console) -> int:
    """Tell what a model is; load it only for those who ask what it would compute on."""
    if args.load or args.backend or args.encoder or args.compute or args.no_flash_attn:
        if args.hash:
            raise ParamsError("--hash is told without loading the model: leave out --load and what chooses a backend")
        return _run_loaded(args, console)
    from ..conversion import inspect_model

    with console.byte_bar("model") as progress:
        found = inspect_model(args.model, hash=args.hash, progress=progress)
    if args.json:
        console.line(json.dumps(found.to_dict(), indent=2))
    else:
        _show(found, console)
    return Status.OK


def _rows(found: ModelDescription) -> list[tuple[str, str]]:
    spoken = f"{len(found.languages)} languages" if found.multilingual else "English only"
    rows = [("name", found.name)]
    for file in found.files:
        rows.append(("file", f"{file.path or 'in memory'}, {_size(file.n_bytes)}"))
        if file.sha256 is not None:
            rows.append(("sha256", file.sha256))
    rows += [
        ("format", found.format),
        ("type", f"{found.type}, {spoken}"),
        ("weights", f"{found.weight_bytes / 1e6:.1f} MB, {found.n_parameters / 1e6:.1f} million numbers"),
    ]
    rows += [("", f"{one.type}: {one.n_tensors} tensors, {one.n_bytes / 1e6:.1f} MB") for one in found.types]
    rows += [
        ("audio", f"{found.n_mels} mel bands, {found.n_audio_ctx} positions"),
        ("encoder", f"{found.n_audio_layer} layers, {found.n_audio_head} heads, {found.n_audio_state} wide"),
        ("decoder", f"{found.n_text_layer} layers, {found.n_text_head} heads, {found.n_text_state} wide"),
        ("text", f"{found.n_vocab} tokens, {found.n_tokens} of them with their text, context of {found.n_text_ctx}"),
        ("heads", _heads(found)),
    ]
    if found.multilingual:
        rows.append(("languages", " ".join(found.languages)))
    for name, tokens in (("suppress", found.suppress_tokens), ("at start", found.begin_suppress_tokens)):
        if tokens is not None:
            rows.append((name, f"{len(tokens)} tokens are never written{'' if name == 'suppress' else ' first'}"))
    for label, name in (("exact", "exact"), (f"auto ({found.auto})", found.auto)):
        need = found.memory[name]
        rows.append(
            ("memory", f"{label}: about {need.weights / 1e6:.0f} MB, and {need.state / 1e6:.0f} MB for each job")
        )
    rows += [("says", f"{key}: {value}") for key, value in sorted(found.metadata.items())]
    return rows


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 100_000 else f"{n_bytes} bytes"


def _heads(found: ModelDescription) -> str:
    heads = found.alignment_heads
    if heads is None:
        return f"none in the file; {found.alignment_preset} is used"
    shown = " ".join(f"{layer}:{head}" for layer, head in heads[:_HEADS_SHOWN])
    return shown + (f" and {len(heads) - _HEADS_SHOWN} more" if len(heads) > _HEADS_SHOWN else "")


def _show(found: ModelDescription, console: Console) -> None:
    for name, value in _rows(found):
        # What a file says of itself is shown as text, whatever a terminal would make of it.
        text = "".join(c if c.isprintable() else " " for c in printable(value))
        console.line(f"{name:10} {text}")


def _run_loaded(args: argparse.Namespace, console: Console) -> int:
    """Load a model and tell what it is, and what it computes on."""
    from ..model import Model

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
