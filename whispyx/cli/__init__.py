"""The command line: `whispyx transcribe`, `demo`, `info`, `devices`, `backends`, `openvino-encoder`, `convert`, …"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from .._stdio import fill_closed, keep_stdout
from .console import Console, describe, prepare_streams, silence_stdout
from .status import Status, status_of

if TYPE_CHECKING:
    import argparse

__all__ = ["Status", "main", "program"]

COLLECT_AFTER: Final = 200_000
"""New objects before garbage is looked for, in a process that runs one command."""


def program() -> int:
    """Run the command as a process: others do not get at its standard output until it has ended.

    A library may print as late as when it is unloaded.
    """
    # Nothing that is imported is garbage; looking for it takes a tenth of the time until the model is read.
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    # NumPy's BLAS would start a thread per core, which spin; nothing here multiplies with it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    fill_closed()
    keep_stdout()
    status = main()
    gc.freeze()  # the end of the process frees all of this; looking through it first takes longer than that
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str or None
        The arguments without the program's name; None takes those of the process.

    Returns
    -------
    int
        An exit code: see `Status`.
    """
    fill_closed()
    put_back = keep_stdout()
    try:
        return _main(argv)
    finally:
        put_back()


def _main(argv: Sequence[str] | None) -> int:
    try:
        prepare_streams()
        status = _run(argv)
        return status if _flushed() else Status.FAILED
    except BrokenPipeError:
        silence_stdout()
        return Status.BROKEN_PIPE
    except KeyboardInterrupt:  # outside of a job: nothing to keep
        print("whispyx: interrupted", file=sys.stderr)
        return Status.INTERRUPTED


def _flushed() -> bool:
    """Have everything written to standard output; tell when it cannot be, such as on a full disk."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"whispyx: standard output: {describe(error)}", file=sys.stderr)
        silence_stdout()
        return False
    return True


def _run(argv: Sequence[str] | None) -> int:
    from .parser import make_parser

    try:
        args = make_parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
    except SystemExit as stop:  # argparse has printed the help or what was wrong
        return stop.code if isinstance(stop.code, int) else Status.OK
    console = Console(debug=getattr(args, "debug", False), verbose=getattr(args, "verbose", 0))
    try:
        return _command(args.command)(args, console)
    except BrokenPipeError:
        raise
    except Exception as error:
        status = status_of(error)
        if status is Status.FAULT:
            console.error(error, f"this is a fault of whispyx ({type(error).__name__}; --debug shows where)")
        else:
            console.error(error)
        return status
    finally:
        console.close()


def _command(name: str) -> Callable[[argparse.Namespace, Console], int]:
    """Return the function of a subcommand, importing only what it needs."""
    if name == "transcribe":
        from .transcribe import run_transcribe

        return run_transcribe
    if name == "demo":
        from .demo import run_demo

        return run_demo
    if name == "backends":
        from .backends import run_backends

        return run_backends
    if name == "doctor":
        from .doctor import run_doctor

        return run_doctor
    if name == "models":
        from .models import run_models

        return run_models
    if name == "openvino-encoder":
        from .openvino_encoder import run_openvino_encoder

        return run_openvino_encoder
    if name == "rpc-server":
        from .rpc_server import run_rpc_server

        return run_rpc_server
    if name in ("convert", "quantize"):
        from . import convert

        return convert.run_convert if name == "convert" else convert.run_quantize
    if name == "info":
        from .info import run_info

        return run_info
    from . import manage

    return {
        "devices": manage.run_devices,
        "fetch": manage.run_fetch,
    }[name]
