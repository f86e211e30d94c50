"""`whispyx openvino-encoder`."""

from __future__ import annotations

import argparse

from .console import Console
from .status import Status

__all__ = ["run_openvino_encoder"]


def run_openvino_encoder(args: argparse.Namespace, console: Console) -> int:
    """Write the encoder of a model as OpenVINO files and print where they are."""
    from ..encoders import openvino_ir
    from ..models import resolve

    with console.byte_bar("model") as progress:
        path = resolve(args.model, progress=progress)
    with console.byte_bar("encoder") as progress:
        made = openvino_ir.write(path, args.out, args.type, progress)
    console.line(str(made))
    return Status.OK
