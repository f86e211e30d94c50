"""How much slower a job gets when one other process keeps a core busy, for whispyx and for whisper.cpp.

python -m bench.busy_neighbour
python -m bench.busy_neighbour --model tiny.en --neighbours 2 --json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.measure import MissingPeer, Start, as_array, default_threads, engines, load_warning

SUMMARY = (__doc__ or "").split("\n\n")[0]
COUNT = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with us, however we end
SETTLE_S = 0.5  # until the neighbours run at full speed


@contextmanager
def busy(n: int) -> Iterator[None]:
    """Run n processes that do nothing but count."""
    with ExitStack() as stack:
        for _ in range(n):
            process = subprocess.Popen([sys.executable, "-c", COUNT])
            stack.callback(process.wait)
            stack.callback(process.kill)
        if n:
            time.sleep(SETTLE_S)
        yield


def seconds(start: Start, model: str, samples: str, params: dict[str, Any], neighbours: int) -> float:
    """Time of the second transcription in a fresh process; the neighbours start behind the first."""
    with start() as worker:
        worker("load", model=model, flash_attn=True)
        worker("full", samples=samples, params=params)
        with busy(neighbours):
            taken: float = worker("full", samples=samples, params=params)["seconds"]
    return taken


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.busy_neighbour", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--model", default="base", help="name or path (default: base)")
    parser.add_argument("--sound", type=Path, help="16 kHz mono recording (default: jfk.wav)")
    parser.add_argument("--language", default="en")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--neighbours", type=int, default=1)
    parser.add_argument("--compute", default="auto", help="precision of whispyx (default: auto)")
    parser.add_argument("--portable", action="store_true", help="compare with the wheel instead of the native build")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    from whispyx.models import resolve, sample

    warning = load_warning()
    if warning:
        print(warning, file=sys.stderr)
    params: dict[str, Any] = {"n_threads": options.threads, "temperature_inc": 0.0, "language": options.language}
    model, sound = str(resolve(options.model)), options.sound or Path(sample("jfk"))
    found: dict[str, dict[str, list[float]]] = {}
    try:
        with as_array(sound) as samples:
            for _ in range(options.rounds):
                for name, start in engines(not options.portable, options.compute).items():
                    row = found.setdefault(name, {"quiet": [], "busy": []})
                    row["quiet"].append(seconds(start, model, samples, params, 0))
                    row["busy"].append(seconds(start, model, samples, params, options.neighbours))
    except MissingPeer as error:
        print(error, file=sys.stderr)
        return 1
    medians = {name: {key: statistics.median(values) for key, values in row.items()} for name, row in found.items()}
    for both in medians.values():
        both["slowdown"] = both["busy"] / both["quiet"]
    if options.json:
        print(json.dumps({"warning": warning, "rounds": options.rounds, "results": medians}, indent=1))
        return 0
    print(f"{options.model}, {sound.name}, {options.threads} threads, {options.neighbours} busy neighbour(s)")
    print(f"{'':14}{'quiet, s':>10}{'busy, s':>10}{'slowdown':>10}")
    for name, both in medians.items():
        print(f"{name:14}{both['quiet']:10.2f}{both['busy']:10.2f}{both['slowdown']:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
