"""`whispyx doctor`: what computes here, whether it is right, and what to do about it."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from collections.abc import Iterable

from .. import __version__
from .._core.base import base_library, ggml_version
from ..encoders import VARIABLE as ENCODER_VARIABLE
from ..errors import ParamsError
from ..plugins import doctor
from ..plugins.advice import advice, in_force
from ..plugins.children import Ending, Message, Tell, work
from ..plugins.doctor import Diagnosis, Examination
from .console import Console
from .status import Status

__all__ = ["add_arguments", "look_for_encoders", "run_doctor"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--timeout",
        type=float,
        default=doctor.SECONDS,
        metavar="SECONDS",
        help="how long a plugin may take for one answer (%(default)g)",
    )


def run_doctor(args: argparse.Namespace, console: Console) -> int:
    """Examine every plugin; 0 all is well, 1 something is wrong but a program works, 4 a program does not work."""
    if not args.timeout > 0:
        raise ParamsError(f"--timeout is {args.timeout:g}; it must be more than 0 seconds")
    with console.count_bar("doctor") as (step, _):
        watch = step if console.watched and not args.json else None
        found = doctor.examine(args.timeout, watch)
        encoders = _encoders(args.timeout)
        encoder = _chosen_encoder(args.timeout)
    machine = _machine()
    variables = in_force(os.environ)
    words = [*_encoder_advice(encoder), *advice(found)]
    if args.json:
        whole = {"machine": machine, "variables": variables, **found.as_dict(), "encoders": encoders, "advice": words}
        whole["encoder"] = encoder
        whole["ok"] = whole["ok"] and encoder["usable"]
        console.line(json.dumps(whole, indent=2))
    else:
        for line in _lines(found, machine, variables, encoders, encoder, words):
            console.line(line)
    if not found.program.works or not encoder["usable"]:
        return Status.BACKEND
    return Status.OK if found.ok else Status.FAILED


def _machine() -> dict[str, str]:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return {
        "whispyx": __version__,
        "ggml": ggml_version(),
        "base": base_library(),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}, {cores} cores for this process",
    }


def look_for_encoders(request: Message, tell: Tell) -> None:
    """Tell which runtimes for external encoders can be imported; runs in a child."""
    from ..encoders import coreml

    try:
        openvino = importlib.import_module("openvino")
    except ImportError as error:
        tell({"name": "openvino", "usable": False, "text": f"the package openvino is not here ({error})"})
    else:
        devices = ", ".join(openvino.Core().available_devices)
        tell({"name": "openvino", "usable": True, "text": f"OpenVINO {openvino.get_version()}, devices: {devices}"})
    usable = coreml.available()
    text = "can be used" if usable else "only on macOS, with the package coremltools"
    tell({"name": "coreml", "usable": usable, "text": text})


def _encoders(seconds: float) -> list[Message]:
    found: list[Message] = []
    for message in work(f"{__name__}:look_for_encoders", {}, seconds):
        if not isinstance(message, Ending):
            found.append(message)
        elif message.kind != "done":
            found.append({"name": "encoders", "usable": False, "text": message.text})
    return found


def try_encoder(request: Message, tell: Tell) -> None:
    """Tell what the variable's encoder is; runs in a child."""
    from ..encoders import check

    tell({"text": check(request["chosen"])})


def _chosen_encoder(seconds: float) -> Message:
    """Return what ``WHISPYX_ENCODER`` makes of every model: what was chosen, whether it can be used, and words."""
    from ..encoders import chosen

    asked = chosen(None)
    found: Message = {"chosen": asked, "usable": True, "text": "the model itself"}
    if asked is None:
        return found
    for message in work(f"{__name__}:try_encoder", {"chosen": asked}, seconds):
        if not isinstance(message, Ending):
            found["text"] = message["text"]
        elif message.kind not in ("done", "late crash"):
            found |= {"usable": False, "text": message.text}
    return found


def _encoder_advice(encoder: Message) -> Iterable[str]:
    if not encoder["usable"]:
        yield (
            f"With {ENCODER_VARIABLE}={encoder['chosen']} no model can be opened: {encoder['text']}. Correct the "
            "variable, or unset it."
        )


def _lines(
    found: Diagnosis,
    machine: dict[str, str],
    variables: dict[str, str],
    encoders: list[Message],
    encoder: Message,
    words: list[str],
) -> Iterable[str]:
    yield f"whispyx {machine['whispyx']} on ggml {machine['ggml']}, Python {machine['python']}"
    yield machine["system"]
    yield machine["base"]
    yield from ("", "variables in force")
    yield from (f"  {name}={value}" for name, value in variables.items())
    if not variables:
        yield "  none"
    yield from ("", "plugins, each tried in a process of its own")
    for plugin in found.plugins:
        loaded = plugin.path in found.program.loaded
        yield from _plugin_lines(
            plugin, "" if not loaded else "loaded as selected" if found.program.selected else "loaded"
        )
    yield "  searched: " + "; ".join(found.searched)
    yield from ("", "what a program gets")
    yield from _program_lines(found)
    if encoder["chosen"] is not None:
        yield f"  its encoder is computed by {encoder['text']}" if encoder["usable"] else f"  {encoder['text']}"
    yield from ("", "external encoders")
    yield from (f"  {encoder['name']}: {encoder['text']}" for encoder in encoders)
    yield from ("", "advice")
    yield from (f"  {number}. {text}" for number, text in enumerate(words, 1))
    if not words:
        yield "  nothing to do"


def _plugin_lines(plugin: Examination, use: str) -> Iterable[str]:
    facts = [plugin.status]
    if plugin.score is not None:
        facts.append(f"score {plugin.score}")
    if plugin.version is not None:
        facts.append(f"ggml {plugin.version}")
    if use:
        facts.append(use)
    yield f"  {plugin.label}: {', '.join(facts)}"
    yield f"    {plugin.path} ({plugin.source})"
    if plugin.reason:
        yield f"    {plugin.reason}"
    yield from (f"    note: {note}" for note in plugin.notes)
    if plugin.printed:
        yield f"    it printed: {plugin.printed.splitlines()[-1]}"
    for device in plugin.devices:
        memory = _memory(device.memory_free, device.memory_total)
        yield f"    device {device.name} ({device.kind}, {plugin.name}:{device.index}): {device.description}{memory}"
        yield (
            f"      {device.right} jobs right, {device.unsupported} left to others, {len(device.faults)} wrong"
            f"{f'; largest error {100 * device.worst:.2g} % of what is allowed' if device.right else ''}"
        )
        yield from (f"      {fault}" for fault in device.faults[:3])
        features = " ".join(name for name, value in device.features.items() if value == "1")
        if features:
            yield f"      {features}"


def _memory(free: int, total: int) -> str:
    return f", {free / 2**30:.1f} of {total / 2**30:.1f} GiB free" if total else ""


def _program_lines(found: Diagnosis) -> Iterable[str]:
    program = found.program
    if program.works:
        why = "as selected" if program.selected else "by default"
        yield f"  a model computes on {', '.join(program.devices)} ({why}); an operation goes to the first that has it"
        others = [name for name in program.all_devices if name not in program.devices]
        if others:
            yield f"  not used unless named: {', '.join(others)}"
        yield from (f"  fallback: {fallback}" for fallback in program.fallbacks)
    else:
        yield f"  it does not work: {program.text}"
    if program.works and program.text:
        yield f"  {program.text}"
    if found.without is not None:
        result = ", ".join(found.without.devices) if found.without.works else f"it does not work: {found.without.text}"
        yield f"  with WHISPYX_BACKEND_EXCLUDE={found.exclude}: {result}"
