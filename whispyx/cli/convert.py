"""`whispyx convert` and `quantize`."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from ..errors import ParamsError
from .console import Console, columns
from .status import Status

if TYPE_CHECKING:
    from ..conversion import Report, Verification

__all__ = ["add_convert_arguments", "add_quantize_arguments", "run_convert", "run_quantize"]

_LISTED = 5  # tensors that lost most


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", help="model name, file or folder, in any format that can be read")
    parser.add_argument("destination", metavar="OUT", help="the file to write; GGUF if it ends in .gguf")
    parser.add_argument("--to", choices=("ggml", "gguf"), help="format, whatever the ending")
    parser.add_argument(
        "--keep",
        metavar="PATTERN=TYPE",
        action="append",
        default=[],
        help="type of the matrices whose names match, such as 'decoder.token_embedding.*=f16'; may be repeated",
    )
    parser.add_argument("--encoder-type", metavar="TYPE", help="type of the encoder's matrices")
    parser.add_argument("--decoder-type", metavar="TYPE", help="type of the decoder's matrices")
    parser.add_argument(
        "--verify", metavar="AUDIO",
        help="then recognise this recording with both models, and tell how texts and probabilities differ",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def add_convert_arguments(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument(
        "--type", "--dtype", metavar="TYPE", help="type of the matrices (what they are): f32, f16, bf16, q8_0, ..."
    )


def add_quantize_arguments(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument(
        "--type", required=True, metavar="TYPE",
        help="q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, q3_k, q2_k, bf16 or f16",
    )  # fmt: skip


def _kept(given: list[str]) -> list[tuple[str, str]]:
    found = []
    for one in given:
        pattern, equals, kind = one.rpartition("=")
        if not equals or not pattern:
            raise ParamsError(f"--keep takes PATTERN=TYPE, not {one!r}")
        found.append((pattern, kind))
    return found


def run_convert(args: argparse.Namespace, console: Console) -> int:
    """Write a model as one file."""
    return _run(args, console)


def run_quantize(args: argparse.Namespace, console: Console) -> int:
    """Write a model as one file, in fewer bits."""
    return _run(args, console)


def _run(args: argparse.Namespace, console: Console) -> int:
    from ..conversion import TypeChoice, convert, verify
    from ..models import resolve

    choice = TypeChoice(args.type, args.encoder_type, args.decoder_type, _kept(args.keep))
    with console.byte_bar("model") as progress:
        source = resolve(args.source, progress=progress)
    if args.verify is not None and _same_file(source, args.destination):
        raise ParamsError("--verify compares IN with OUT, and they are one file: write to another one")
    with console.byte_bar("convert") as progress:
        report = convert(source, args.destination, choice, format=args.to, progress=progress)
    if not args.json:
        _show(report, console)
    verification = None
    try:
        if args.verify is not None:
            with console.percent_bar("verify") as percent:
                verification = verify(source, args.destination, args.verify, progress=percent)
    finally:  # whatever happens, the file is there, and so is its report
        if args.json:
            found = {} if args.verify is None else {"verification": verification and verification.to_dict()}
            console.line(json.dumps(report.to_dict() | found, indent=2))
    if verification is not None and not args.json:
        _show_verification(verification, console)
    return Status.OK


def _same_file(source: Any, destination: str) -> bool:
    try:
        return os.path.samefile(source, destination)
    except OSError:  # there is no OUT yet
        return False


def _show(report: Report, console: Console) -> None:
    console.line(report.path)
    before, after = report.bytes_before / 1e6, report.bytes_after / 1e6
    kinds = sorted({tensor.after for tensor in report.tensors})
    console.line(f"{before:.1f} MB -> {after:.1f} MB ({', '.join(kinds)}), {report.format}")
    if report.format == "ggml" and not report.readable_by_whisper_cpp:
        console.line("its matrices have several types: whisper.cpp does not read such a file, whispyx does")
    worst = sorted(report.tensors, key=lambda tensor: -tensor.error)[:_LISTED]
    if worst and worst[0].error > 0:
        rows = [("largest errors", "type", "rms", "largest")]
        rows += [(t.name, t.after, f"{t.error:.2e}", f"{t.largest_error:.2e}") for t in worst if t.error > 0]
        for line in columns(rows):
            console.line(line)


def _show_verification(found: Verification, console: Console) -> None:
    if not found.text_before and not found.text_after:
        console.line("not verified: neither model recognises any words in this recording")
    elif found.equal:
        console.line(f"verified: the same text, {found.n_words} words")
    else:
        console.line(f"verified: the texts differ in {found.n_words_different} of {found.n_words} words")
        for change in found.changes:
            console.line(f"  {change.before or '(nothing)'} -> {change.after or '(nothing)'}")
    if found.language_before != found.language_after:
        console.line(f"language: {found.language_before} -> {found.language_after}")
    if found.mean_difference is not None:
        console.line(
            f"log-probability of {found.n_tokens} tokens: mean difference {found.mean_difference:+.4f},"
            f" rms {found.rms_difference:.4f}, largest {found.largest_difference:.4f}"
        )
        console.line(f"perplexity: {found.perplexity_before:.4f} -> {found.perplexity_after:.4f}")
    if found.compared < found.duration:
        console.line(f"only the first {found.compared:g} s of {found.duration:.1f} s were compared")
