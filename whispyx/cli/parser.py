"""The command's arguments. Flags of a transcription are made from the fields of `TranscribeOptions`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from .. import __version__
from ..model import DEFAULT_MODEL
from ..options import TranscribeOptions
from ..writers import formats
from .console import printable

__all__ = ["make_parser", "options_from"]

_EXIT_CODES = (
    "exit codes: 0 all went well; 1 a file could not be read, recognised or written; 2 wrong usage; 3 model not found"
    " or damaged; 4 backend not usable; 70 a fault of whispyx; 130 interrupted; 141 the reader of the output went away"
)


def make_parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command.

    With the arguments that it is for, it knows the flags of other commands only as far as that takes no time: what
    some commands need for theirs takes longer to load than a short recording to recognise.
    """
    # no flag in front of the command has a value
    wanted = None if argv is None else next((word for word in argv if not word.startswith("-")), "")
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-v", "--verbose", action="count", help="tell more on standard error; twice: everything")
    common.add_argument("--debug", action="store_true", help="show the traceback of errors")
    parser = argparse.ArgumentParser(
        "whispyx",
        description="Whisper speech recognition on ggml backends.",
        epilog=_EXIT_CODES,
        parents=[common],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"whispyx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, description=help, parents=[common], allow_abbrev=False)

    _transcribe_arguments(command("transcribe", "write down the speech in sound files"))

    demo = command("demo", "fetch a small model and a recording, and recognise it")
    demo.add_argument("-m", "--model", default="tiny.en", metavar="MODEL", help="model name or file (%(default)s)")
    _backend_arguments(demo)
    demo.add_argument("-t", "--threads", type=int, metavar="N", help="threads to compute with")

    info = command("info", "tell what a model is")
    if wanted in (None, "info"):
        from . import info as info_command

        info_command.add_arguments(info)
        _backend_arguments(info)

    devices = command("devices", "list the devices that can compute")
    devices.add_argument("--json", action="store_true", help="as JSON")
    devices.add_argument("--backend", metavar="LIST", help="backends to load, best first")

    examine = command("doctor", "try every backend, say what is wrong with it and what to do")
    if wanted in (None, "doctor"):
        from . import doctor

        doctor.add_arguments(examine)

    manage = command("backends", "list, build and remove backends")
    if wanted in (None, "backends"):
        from . import backends

        backends.add_arguments(manage, common)

    store = command("models", "list, fetch, verify and remove models")
    if wanted in (None, "models"):
        from . import models

        models.add_arguments(store, common)

    change = command("convert", "write a model of any readable form as one file")
    if wanted in (None, "convert"):
        from . import convert

        convert.add_convert_arguments(change)

    shrink = command("quantize", "write a model as one file, in fewer bits")
    if wanted in (None, "quantize"):
        from . import convert

        convert.add_quantize_arguments(shrink)

    openvino = command("openvino-encoder", "write a model's encoder as files for OpenVINO")
    openvino.add_argument("model", metavar="MODEL", help="model name or file")
    openvino.add_argument(
        "--out", metavar="PATH", help="the .xml file to write, or a folder; without it, beside the model"
    )
    openvino.add_argument(
        "--type", choices=("f16", "bf16", "f32"), default="f16",
        help="storage of the weights (%(default)s); with f32 whispyx also computes in f32",
    )  # fmt: skip

    serve = command("rpc-server", "let other processes and machines compute on a device of this one")
    if wanted in (None, "rpc-server"):
        from . import rpc_server

        rpc_server.add_arguments(serve)

    fetch = command("fetch", "fetch models by name, if they are not here yet, and print their paths")
    fetch.add_argument("models", nargs="+", metavar="MODEL", help="model name")
    return parser


def _backend_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", metavar="LIST", help="backends to compute on, best first, such as vulkan:0,cpu; they are required"
    )
    parser.add_argument(
        "--encoder",
        metavar="E",
        help="what computes the encoder instead: openvino, coreml, a file, or model",
    )
    parser.add_argument(
        "--compute",
        choices=("auto", "f32", "bf16", "mixed", "int8", "exact"),
        help="precision; auto unless WHISPYX_COMPUTE says so",
    )
    parser.add_argument("--no-flash-attn", action="store_true", help="compute attention without the fused kernel")


def _transcribe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="sound file; - is standard input")
    parser.add_argument(
        "-m", "--model", default=DEFAULT_MODEL, metavar="MODEL", help="model name or file (%(default)s)"
    )
    parser.add_argument(
        "-l", "--language", default="auto", metavar="LANG", help="code or English name of the language (%(default)s)"
    )
    parser.add_argument("--translate", action="store_true", help="translate to English")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="write files to this folder, instead of text to standard output; -o - with one format: to standard output",
    )
    parser.add_argument(
        "-f",
        "--format",
        metavar="LIST",
        help=f"formats to write: {','.join(formats())} (txt); without -o, to the current folder",
    )
    parser.add_argument("--times", action="store_true", help="print times in front of the text on standard output")
    _backend_arguments(parser)
    group = parser.add_argument_group("recognition")
    for option in fields(TranscribeOptions):
        flag, help = option.metadata.get("flag"), option.metadata.get("help")
        if flag is None:
            continue
        settings: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS, "help": help}
        kind = str(option.type)
        if kind == "bool":
            settings |= {"action": "store_const", "const": not option.default}
        else:
            settings |= {
                "type": float if kind.startswith("float") else int if kind.startswith("int") else str,
                "metavar": "TEXT" if kind.startswith("str") else "N",
            }
            if option.default not in (None, MISSING):
                settings["help"] = f"{help} ({option.default})"
        group.add_argument(*(["-t"] if flag == "--threads" else []), flag, **settings)


def options_from(args: argparse.Namespace) -> TranscribeOptions:
    """Return the options that the arguments of ``whispyx transcribe`` ask for.

    Raises
    ------
    ParamsError, LanguageError
        A value is out of range, or the language unknown.
    """
    given = {
        option.name: getattr(args, option.name)
        for option in fields(TranscribeOptions)
        if option.metadata.get("flag") and hasattr(args, option.name)
    }
    for name in ("initial_prompt", "suppress_regex"):
        if name in given:
            given[name] = printable(given[name])  # the C locale does not decode arguments
    return TranscribeOptions(language=args.language, task="translate" if args.translate else "transcribe", **given)
