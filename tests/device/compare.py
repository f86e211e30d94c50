"""Transcribes one recording on a backend and on the CPU, and says whether the texts are the same.

    python tests/device/compare.py cuda --models tiny.en base --audio jfk.wav

Every model runs with and without flash attention, beam search with 5 beams. Each backend works in a process of its
own, so that a crash or a hang is a line of the table and not the end. The exit status is 0 when everything ran on the
device that was asked for and every text was that of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def work(arguments: argparse.Namespace) -> None:
    """Run all models on one backend; write one line of JSON per run."""
    import whispyx

    out = Path(arguments.results)
    for name in arguments.models:
        for flash in (True, False):
            started = time.perf_counter()
            with whispyx.Model(name, backend=arguments.backend, flash_attn=flash) as model:
                ready = time.perf_counter()
                seconds = []
                for _ in range(arguments.runs):
                    before = time.perf_counter()
                    found = model.transcribe(arguments.audio, "en", beam_size=arguments.beams, temperature_inc=0.0)
                    seconds.append(time.perf_counter() - before)
                run = {
                    "model": Path(name).stem if os.sep in name else name,
                    "flash": flash,
                    "devices": list(model.devices),
                    "load": ready - started,
                    "seconds": seconds,
                    "text": " ".join(found.text.split()),
                    "times": [[segment.start, segment.end] for segment in found.segments],
                }
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")


def runs_of(backend: str, arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    """Return what a backend made of the models, and why it stopped ("" when it did not)."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        results.touch()
        command = [sys.executable, str(Path(__file__).resolve()), backend, "--audio", arguments.audio, "--worker"]
        command += ["--models", *arguments.models, "--runs", str(arguments.runs), "--beams", str(arguments.beams)]
        command += ["--results", str(results)]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        why = ""
        try:
            done = subprocess.run(
                command, env={**os.environ, "PYTHONPATH": path}, timeout=arguments.seconds, check=False
            )
            if done.returncode < 0:
                why = f"died of {signal.Signals(-done.returncode).name}"
            elif done.returncode:
                why = f"ended with status {done.returncode}; its messages are above"
        except subprocess.TimeoutExpired:
            why = f"not finished after {arguments.seconds} s"
        return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()], why


def table(wanted: list[dict[str, Any]], found: list[dict[str, Any]], backend: str) -> tuple[list[str], bool]:
    """Return the lines of the comparison and whether all is well."""
    lines = ["| model | flash attention | device | load s | first s | next s | CPU s | text |", "|" + "---|" * 8]
    fine = len(found) == len(wanted)
    for here, there in zip(wanted, found, strict=False):
        same = here["text"] == there["text"] and bool(here["text"])
        # The CPU stands last in every list; alone, it has computed everything.
        moved = backend.split(":")[0] == "cpu" or len(there["devices"]) > 1
        fine = fine and same and moved
        verdict = ("same" if same else "DIFFERENT") + ("" if moved else ", NOT ON THE DEVICE")
        first, *later = there["seconds"]
        lines.append(
            f"| {there['model']} | {'on' if there['flash'] else 'off'} | {there['devices'][0]} | {there['load']:.2f} | "
            f"{first:.2f} | {f'{min(later):.2f}' if later else '-'} | {min(here['seconds']):.2f} | {verdict} |"
        )
        if not same:
            lines += [f"    CPU: {here['text']}", f"    {backend}: {there['text']}"]
    return lines, fine


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", help="as in WHISPYX_BACKEND")
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"], help="names or files (%(default)s)")
    parser.add_argument("--audio", required=True, help="the recording")
    parser.add_argument("--runs", type=int, default=2, help="times each model transcribes it (%(default)s)")
    parser.add_argument("--beams", type=int, default=5, help="size of the beam (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120, help="limit for one backend (%(default)s)")
    parser.add_argument("--json", help="also write the runs to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return 0
    wanted, why_not = runs_of("cpu", arguments)
    if why_not:
        print(f"The CPU, which the others are compared with, {why_not}.", file=sys.stderr)
        return 1
    found, why = runs_of(arguments.backend, arguments)
    lines, fine = table(wanted, found, arguments.backend)
    print("\n".join(lines))
    if why:
        print(f"{arguments.backend} {why}.", file=sys.stderr)
    if arguments.json:
        Path(arguments.json).write_text(
            json.dumps({"cpu": wanted, arguments.backend: found}, indent=1), encoding="utf-8"
        )
    return 0 if fine and not why else 1


if __name__ == "__main__":
    sys.exit(main())
