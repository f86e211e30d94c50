"""Where the time of a transcription goes, stage by stage, for each precision.

python -m bench.stages                             base on jfk.wav: exact (ggml's operations), and all of ours
python -m bench.stages --model tiny.en --compute exact auto --rounds 7

Best of the rounds, whole runs: of the round that was the fastest. "rest" is what no stage's clock has seen.

python -m bench.stages --host --model base         what a token costs beside the decoder's operations

"host" is everything between the encoder's end and the result that is not spent in an operation of the decoder: starting
its graph and the pauses between its blocks, filling the batch, rules, choice, segments. It is given per run of the
decoder, one of which is a token of every beam; of the round in which it was the least: others are disturbed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import sounds, suite
from bench.measure import at_least_one, default_threads, load_warning
from tools.workers.client import FOLDER, Worker
from whispyx._core.kernels import COMPUTE

BEAMS = 5
HOST_HEADER = (
    "| ms per run of the decoder | operations | host | of it graphs and batch | choice | rest |\n|" + "---|" * 6
)
LABELS = {
    "mel_ms": "spectrogram",
    "encode_ms": "encoder",
    "cross_ms": "cross keys and values",
    "prompt_ms": "prompt",
    "batchd_ms": "prompt and beams",
    "decode_ms": "tokens",
    "sample_ms": "choice of tokens",
}


def stages(setting: suite.Setting, path: str, compute: str, rounds: int) -> dict[str, float]:
    """Milliseconds of each stage in the fastest of some runs."""
    params = {"n_threads": setting.threads, "temperature_inc": 0.0, "language": suite.LANGUAGE}
    samples = setting.sounds["jfk"][0]
    with suite.alone(setting), Worker(FOLDER / "whispyx_core.py", setting.python) as worker:
        worker("load", model=path, flash_attn=True, compute=compute)
        worker("full", samples=samples, params=params)
        runs = [worker("full", samples=samples, params=params) for _ in range(rounds)]
    best = min(runs, key=lambda run: run["seconds"])
    found: dict[str, float] = {label: best["stages"][key] for key, label in LABELS.items()}
    found["rest"] = 1e3 * best["seconds"] - sum(found.values())
    return {**found, "all": 1e3 * best["seconds"]}


def host(setting: suite.Setting, path: str, compute: str, rounds: int) -> Iterator[str]:
    """Lines of a table: milliseconds of the host and of operations per run of the decoder, greedy and with beams."""
    samples = setting.sounds["jfk"][0]
    with suite.alone(setting), Worker(FOLDER / "whispyx_core.py", setting.python) as worker:
        worker("load", model=path, flash_attn=True, compute=compute)
        for beams in (1, BEAMS):
            params = {"n_threads": setting.threads, "temperature_inc": 0.0, "language": suite.LANGUAGE}
            if beams > 1:
                params |= {"strategy": "beam_search", "beam_size": beams}
            worker("full", samples=samples, params=params)
            runs = [worker("full", samples=samples, params=params) for _ in range(rounds)]
            parts = min((host_parts(run) for run in runs), key=lambda parts: parts[1])
            yield (
                f"| {compute}, {'greedy' if beams == 1 else f'{beams} beams'} | "
                + " | ".join(f"{ms:.3f}" for ms in parts)
                + " |"
            )


def host_parts(run: dict[str, Any]) -> tuple[float, ...]:
    """Milliseconds per run of the decoder: operations, host, and of the host graphs, choice and rest."""
    stages, decoder = run["stages"], run["decoder"]
    decoding = stages["prompt_ms"] + stages["batchd_ms"] + stages["decode_ms"]
    before = stages["mel_ms"] + stages["encode_ms"] + stages["cross_ms"]
    graphs, choice = decoding - decoder["ops_ms"], stages["sample_ms"]
    everything = 1e3 * run["seconds"] - before - decoder["ops_ms"]
    parts = decoder["ops_ms"], everything, graphs, choice, everything - graphs - choice
    return tuple(part / decoder["runs"] for part in parts)


def table(columns: dict[str, dict[str, float]]) -> list[str]:
    """Markdown: a row a stage, a column a precision, with its share of the whole."""
    lines = [f"| ms | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for stage in next(iter(columns.values())):
        cells = [f"{found[stage]:.1f} ({100 * found[stage] / found['all']:.0f} %)" for found in columns.values()]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stages", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", default="base", help="name or path (default: base)")
    parser.add_argument(
        "--compute", nargs="+", choices=COMPUTE, help="precisions (default: all but auto, and with --host but exact)"
    )
    parser.add_argument("--host", action="store_true", help="what a token costs beside the decoder's operations")
    parser.add_argument("--threads", type=at_least_one, default=default_threads())
    parser.add_argument("--rounds", type=at_least_one, default=5)
    parser.add_argument("--lock", type=Path, help="file to lock during each measurement, on a machine that is shared")
    options = parser.parse_args(arguments)
    if options.host and "exact" in (options.compute or ()):
        parser.error("--host is about the decoder's operations of our own kernels: exact has none")
    ours = [kind for kind in COMPUTE if kind not in ("auto", "exact")]
    options.compute = options.compute or (ours if options.host else ["exact", *ours])
    warning = load_warning()
    if warning:
        print(warning, file=sys.stderr)
    from tests import data
    from whispyx.errors import ModelError
    from whispyx.models import resolve

    try:
        jfk, path = data.jfk_wav(), str(resolve(options.model))
    except (data.Unavailable, ModelError) as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "jfk.npy"
        np.save(samples, sounds.read(jfk))
        setting = suite.Setting(
            sys.executable, options.threads, {"jfk": (str(samples), 11.0)}, jfk, lock=options.lock
        )  # fmt: skip
        if options.host:
            print(f"{options.model}, jfk.wav, {options.threads} threads, best of {options.rounds}\n\n{HOST_HEADER}")
            for kind in options.compute:
                print("\n".join(host(setting, path, kind, options.rounds)))
            return 0
        columns = {kind: stages(setting, path, kind, options.rounds) for kind in options.compute}
    print(f"{options.model}, jfk.wav, {options.threads} threads, best of {options.rounds}\n")
    print("\n".join(table(columns)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
