"""`whispyx demo`: a small model and a short recording, to see that everything works."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..errors import WhispyxError
from ..model import Model
from ..options import TranscribeOptions
from .console import Console, describe
from .status import Status
from .transcribe import segment_line

__all__ = ["run_demo"]


def _recording(console: Console) -> tuple[Path, str]:
    """Return the recording and what to say of it."""
    from ..models import sample

    try:
        with console.byte_bar("recording") as progress:
            return sample("jfk", progress=progress), "J. F. Kennedy's inaugural address, 1961; public domain"
    except (WhispyxError, OSError) as error:
        console.note(f"whispyx: the recording cannot be had ({describe(error)}); a synthetic sentence stands in")
        return sample("synthetic"), "a synthetic sentence, since the recording could not be fetched"


def _described(names: Sequence[str]) -> list[str]:
    """Return devices with what they are and which plugin file serves them."""
    from .._core.devices import devices

    known = {
        device.name: f"{device.name} ({device.description}, {Path(device.plugin_path).name})" for device in devices()
    }
    return [known.get(name, name) for name in names]


def run_demo(args: argparse.Namespace, console: Console) -> int:
    """Recognise a recording and tell what computed it and how fast."""
    options = TranscribeOptions(n_threads=args.threads)
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
        path, about = _recording(console)
        info = model.info
        console.line(f"model      {info.name} ({info.type}, {info.ftype}, {info.weight_bytes / 1e6:.1f} MB)")
        console.line(f"recording  {path.name}: {about}")
        with console.percent_bar(path.name) as percent:
            transcript = model.transcribe(
                path,
                options=options,
                on_segment=lambda segment: console.line(segment_line(segment, times=True)),
                progress=percent,
            )
        timings = transcript.timings
        console.line(f"backend    {'; '.join(_described(transcript.devices))}")
        console.line(
            f"speed      {transcript.duration:.1f} s of speech in {timings.total_ms / 1000:.2f} s:"
            f" {transcript.speed or 0:.1f} times real time (the model loaded in {timings.load_ms / 1000:.2f} s)"
        )
    return Status.OK
