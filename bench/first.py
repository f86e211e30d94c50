"""whispyx and whisper.cpp on the same recordings, in turn, with the same number of threads.

python -m bench.first                              base on jfk.wav
python -m bench.first --model tiny.en --sound talk.wav --rounds 9 --json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.measure import Figures, MissingPeer, as_array, default_threads, engines, load_warning, measure

ROWS = (
    ("encode, ms per window", "encode_ms"),
    ("decode, ms per token", "decode_ms"),
    ("end to end, s", "seconds"),
    ("load, ms", "load_ms"),
    ("peak memory, MiB", "peak_mib"),
)
REFERENCE = "whisper.cpp"


def compare(options: argparse.Namespace, sound: Path) -> dict[str, Figures]:
    """Medians of each engine over the rounds; the engines take turns, so that a slow spell hits all of them."""
    from whispyx.models import resolve

    model = str(resolve(options.model))
    params: dict[str, Any] = {"n_threads": options.threads, "temperature_inc": 0.0, "language": options.language}
    rounds: dict[str, list[Figures]] = {}
    with as_array(sound) as samples:
        for _ in range(options.rounds):
            for name, start in engines(not options.portable, options.compute).items():
                figures = measure(start, model, samples, params, not options.no_flash_attn, options.warm)
                rounds.setdefault(name, []).append(figures)
    return {name: Figures.median(found) for name, found in rounds.items()}


def table(title: str, medians: dict[str, Figures]) -> str:
    """One column an engine, and the ratio to whisper.cpp: below 1 is better."""
    names = list(medians)
    lines = [title, f"{'':24}" + "".join(f"{name:>14}" for name in names) + f"{'ratio':>8}"]
    for label, field in ROWS:
        values = [getattr(medians[name], field) for name in names]
        ratio = getattr(medians["whispyx"], field) / getattr(medians[REFERENCE], field)
        lines.append(f"{label:24}" + "".join(f"{value:14.2f}" for value in values) + f"{ratio:8.2f}")
    tokens = {name: figures.n_tokens for name, figures in medians.items()}
    return "\n".join([*lines, f"tokens: {', '.join(f'{name} {n}' for name, n in tokens.items())}"])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.first", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", default="base", help="name or path (default: base)")
    parser.add_argument("--sound", type=Path, action="append", help="16 kHz mono recording (default: jfk.wav)")
    parser.add_argument("--language", default="en")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=1, help="uncounted runs in each process (default: 1)")
    parser.add_argument("--compute", default="auto", help="precision of whispyx (default: auto)")
    parser.add_argument("--portable", action="store_true", help="compare with the wheel instead of the native build")
    parser.add_argument("--no-flash-attn", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    warning = load_warning()
    if warning:
        print(warning, file=sys.stderr)
    try:
        if options.sound is None:
            from whispyx.models import sample

            options.sound = [Path(sample("jfk"))]
        results = {str(sound): compare(options, sound) for sound in options.sound}
    except MissingPeer as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        settings = {"model": options.model, "threads": options.threads, "rounds": options.rounds}
        found = {s: {name: vars(f) for name, f in medians.items()} for s, medians in results.items()}
        print(json.dumps({**settings, "warning": warning, "results": found}, indent=1))
    else:
        for sound, medians in results.items():
            title = f"{options.model}, {Path(sound).name}, {options.threads} threads, median of {options.rounds}"
            print(table(title, medians))
    return 0


if __name__ == "__main__":
    sys.exit(main())
