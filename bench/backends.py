"""The same recording on every backend: is the text the same, how far are the logits from the plainest CPU's, how slow.

python -m bench.backends --plugins DIR...          tiny.en on jfk.wav; DIRs hold plugins that are not installed
python -m bench.backends --only cpu-x64 blas --rounds 5 --json

Each backend runs in a process of its own. Text and tokens come from a whole transcription; for the logits every backend
is given the tokens of the plainest CPU, so that a step has the same history everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import default_threads, load_warning

ROOT = Path(__file__).resolve().parents[1]
STEPS = 12  # tokens behind the prompt, before the second comparison
CHILD_SECONDS = 1800
SERVER_SECONDS = 60


@dataclass(frozen=True)
class Way:
    """One way to compute."""

    name: str
    backend: str = "cpu"
    encoder: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    serves: bool = False


WAYS = (
    Way("cpu-x64", variables={"WHISPYX_CPU_VARIANT": "x64"}),
    Way("cpu-haswell", variables={"WHISPYX_CPU_VARIANT": "haswell"}),
    Way("cpu-zen4", variables={"WHISPYX_CPU_VARIANT": "zen4"}),
    Way("blas", backend="blas,cpu"),
    Way("rpc, loopback", backend="rpc:0,cpu", serves=True),
    Way("openvino", encoder="openvino"),
    Way("vulkan", backend="vulkan,cpu", variables={"GGML_VK_VISIBLE_DEVICES": "0", "GGML_VK_DISABLE_F16": "1"}),
)
REFERENCE = WAYS[0].name


@dataclass(frozen=True)
class Outcome:
    """What one way gave; `error` says why nothing."""

    way: str
    error: str = ""
    devices: tuple[str, ...] = ()
    text: str = ""
    tokens: tuple[int, ...] = ()
    first: Any = None
    later: Any = None
    seconds: float = 0.0
    load_seconds: float = 0.0


def child(request: dict[str, Any]) -> None:
    """Compute; the answer goes to standard output, the logits to files."""
    import whispyx

    start = time.perf_counter()
    model = whispyx.Model(
        request["model"], request["backend"], n_threads=request["threads"], encoder=request["encoder"]
    )
    with model:
        load_seconds = time.perf_counter() - start
        spent = []
        for _ in range(1 + request["rounds"]):  # the first one warms up
            start = time.perf_counter()
            result = model.transcribe(request["sound"], language="en", temperature=0.0)
            spent.append(time.perf_counter() - start)
        tokens = [int(token.id) for segment in result.segments for token in segment.tokens]
        forced = request["tokens"] or tokens
        with whispyx.Runner(model, language="en", timestamps=True, n_threads=request["threads"]) as runner:
            runner.set_audio(request["sound"])
            runner.encode()
            np.save(request["first"], runner.prefill(runner.prompt()))
            for token in forced[:STEPS]:
                logits = runner.step(token)
            np.save(request["later"], logits)
        answer = {
            "devices": list(model.info.devices),
            "text": result.text.strip(),
            "tokens": tokens,
            "seconds": statistics.median(spent[1:] or spent),
            "load_seconds": load_seconds,
        }
    print(json.dumps(answer))


def run(way: Way, options: argparse.Namespace, model: str, sound: str, tokens: Sequence[int] = ()) -> Outcome:
    """Compute in a child."""
    environment = {key: value for key, value in os.environ.items() if key != "WHISPYX_BACKEND"}
    for name, value in way.variables.items():
        environment.setdefault(name, value)
    places = [*map(str, options.plugins), *filter(None, [environment.get("WHISPYX_BACKEND_PATH")])]
    if places:
        environment["WHISPYX_BACKEND_PATH"] = os.pathsep.join(places)
    with tempfile.TemporaryDirectory() as folder, served(way, environment, options.threads) as server:
        if server:
            environment["WHISPYX_RPC_SERVERS"] = server
        request = {
            "model": model,
            "backend": way.backend,
            "encoder": way.encoder,
            "threads": options.threads,
            "sound": sound,
            "tokens": list(tokens),
            "rounds": options.rounds,
            "first": f"{folder}/first.npy",
            "later": f"{folder}/later.npy",
        }
        command = [sys.executable, "-m", "bench.backends", "--child", json.dumps(request)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            return Outcome(way.name, error=lines[-1] if lines else f"exit code {done.returncode}")
        answer = json.loads(done.stdout.splitlines()[-1])
        first, later = np.load(request["first"]), np.load(request["later"])
    return Outcome(
        way=way.name,
        devices=tuple(answer["devices"]),
        text=answer["text"],
        tokens=tuple(answer["tokens"]),
        first=first,
        later=later,
        seconds=answer["seconds"],
        load_seconds=answer["load_seconds"],
    )


@contextmanager
def served(way: Way, environment: dict[str, str], threads: int) -> Iterator[str]:
    """Serve the CPU on this machine while the block runs, if the way needs it; give the server's address."""
    if not way.serves:
        yield ""
        return
    command = [
        sys.executable,
        "-m",
        "whispyx",
        "rpc-server",
        "--port",
        "0",
        "--device",
        "cpu",
        "--threads",
        str(threads),
    ]
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline().strip()  # "serving … on 127.0.0.1:12345", or nothing when it has ended
        yield line.rpartition(" ")[2] if line else "127.0.0.1:9"
    finally:
        server.terminate()
        try:
            server.wait(SERVER_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        if server.stdout is not None:
            server.stdout.close()


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Compare everything with the reference."""
    reference = next((outcome for outcome in outcomes if outcome.way == REFERENCE and not outcome.error), None)
    found = []
    for outcome in outcomes:
        row: dict[str, Any] = {"backend": outcome.way, "error": outcome.error, "devices": list(outcome.devices)}
        if not outcome.error and reference is not None:
            row |= {
                "same_text": outcome.text == reference.text,
                "same_tokens": outcome.tokens == reference.tokens,
                "first": float(np.abs(outcome.first - reference.first).max()),
                "later": float(np.abs(outcome.later - reference.later).max()),
                "seconds": outcome.seconds,
                "load_seconds": outcome.load_seconds,
                "text": outcome.text,
            }
        found.append(row)
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| backend | devices | text | tokens | logits, first | logits, later | time |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        if "first" not in row:
            lines.append(f"| {row['backend']} | not here: {row['error']} | | | | | |")
            continue
        same = ("same" if row[key] else "**other**" for key in ("same_text", "same_tokens"))
        devices = ", ".join(row["devices"])
        lines.append(
            f"| {row['backend']} | {devices} | {' | '.join(same)} | {row['first']:.2g} | {row['later']:.2g} "
            f"| {row['seconds']:.2f} s |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; 0 when all texts are the same."""
    parser = argparse.ArgumentParser(prog="python -m bench.backends", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--model", default="tiny.en", help="name or path (%(default)s)")
    parser.add_argument("--sound", type=Path, help="recording (default: jfk.wav)")
    parser.add_argument("--plugins", type=Path, nargs="+", default=[], help="folders with plugins")
    parser.add_argument("--only", nargs="+", metavar="BACKEND", help=f"some of: {', '.join(w.name for w in WAYS)}")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=3, help="transcriptions; the median counts (%(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.child:
        child(json.loads(options.child))
        return 0
    from whispyx.models import resolve, sample

    options.plugins = [folder.resolve() for folder in options.plugins]
    model = str(resolve(options.model))
    sound = str(options.sound.resolve()) if options.sound else str(sample("jfk"))
    chosen = [way for way in WAYS if not options.only or way.name == REFERENCE or way.name in options.only]
    warning = load_warning()
    if warning and not options.json:
        print(warning, file=sys.stderr)
    reference = run(chosen[0], options, model, sound)
    if reference.error:
        print(f"{REFERENCE}: {reference.error}", file=sys.stderr)
        return 1
    outcomes = [reference, *(run(way, options, model, sound, reference.tokens) for way in chosen[1:])]
    found = rows(outcomes)
    print(json.dumps(found, indent=2) if options.json else f"{table(found)}\n\n{reference.text}")
    return 0 if all(row.get("same_text", True) for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
