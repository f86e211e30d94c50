"""whispyx beside every recogniser that is set up: one table, the bars that are to be met, and what the machine gives.

python -m bench                                    tiny.en and base on jfk, a lecture and 167 s of speech; 5 rounds
python -m bench --long talk.wav --rounds 7 --compute int8 --plot table.png
python -m bench --model base --engines whispyx whisper.cpp --no-long

Engines take turns round by round, each in a process and an environment of its own. The table goes to standard output
and, as bench.json and bench.md, to the folder of --out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import machine, report, roofline, sounds, suite
from bench.engines import BATCH, OURS, Engine, all_engines
from bench.measure import at_least_one, default_threads, load_warning
from tools.workers.client import WorkerError
from whispyx._core.kernels import COMPUTE

Rounds = dict[tuple[str, str], dict[str, list[float]]]
OUT = Path(__file__).resolve().parents[1] / "build" / "bench"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", action="append", help="tiny.en, base, or both (default)")
    parser.add_argument("--rounds", type=at_least_one, default=5)
    parser.add_argument("--threads", type=at_least_one, default=default_threads())
    parser.add_argument("--long", type=Path, help="16 kHz mono recording of 2 to 3 minutes (default: clips joined)")
    parser.add_argument("--no-long", action="store_true", help="leave the long recording out")
    parser.add_argument("--compute", choices=COMPUTE, help="what whispyx computes with")
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="run these alone, by the beginning of their names")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for bench.json and bench.md (%(default)s)")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the result (needs matplotlib: the bench extra)")
    parser.add_argument(
        "--best", action="store_true", help="take the best of the rounds, not the median: for a machine that is busy"
    )
    parser.add_argument("--lock", type=Path, help="file to lock during each measurement, on a machine that is shared")
    options = parser.parse_args(arguments)
    names = [engine.name for engine in all_engines(sys.executable)]
    for wanted in options.engines or ():
        if not any(name.startswith(wanted) for name in names):
            parser.error(f"no engine's name begins with {wanted!r}; there are: {', '.join(names)}")
    return options


class Runner:
    """Collects the figures of all rounds."""

    def __init__(self, options: argparse.Namespace, setting: suite.Setting, paths: dict[str, str]) -> None:
        self.options, self.setting, self.paths = options, setting, paths
        self.rounds: Rounds = {}
        self.failed: dict[str, str] = {}
        self.regimes: list[float | None] = []
        wanted = options.engines
        self.engines = [e for e in all_engines(setting.python) if not wanted or e.name.startswith(tuple(wanted))]

    def missing(self) -> list[str]:
        lines = []
        for engine in self.engines:
            reasons = {reason for model in self.paths if (reason := engine.missing(model))}
            lines += [f"{engine.name}: not set up ({'; '.join(sorted(reasons))})"] if reasons else []
        return lines + [f"{what}: {why}" for what, why in self.failed.items()]

    def add(self, engine: str, model: str, what: str, get: Callable[[], suite.Values]) -> None:
        """Take figures; an engine that fails is named in the report and does not end the run."""
        if what in self.failed:
            return
        try:
            values = get()
        except (WorkerError, RuntimeError, OSError) as error:
            self.failed[what] = str(error).splitlines()[0]
            return
        row = self.rounds.setdefault((engine, model), {})
        for key, value in values.items():
            row.setdefault(key, []).append(value)

    def run(self) -> None:
        for number in range(self.options.rounds):
            for model, path in self.paths.items():
                self.regimes.append(machine.one_way_ns())
                for engine in turned(self.engines, number):
                    if not engine.missing(model):
                        self._engine(engine, model, number)
                self._ours(number, model, path)

    def _engine(self, engine: Engine, model: str, number: int) -> None:
        name, setting = engine.name, self.setting
        tell(f"round {number + 1}, {model}, {name}")
        self.add(name, model, f"{name}, {model}", lambda: suite.engine_round(engine, model, setting))
        if number == 0:
            self.add(name, model, f"{name}, {model}, memory", lambda: suite.peak_round(engine, model, setting))

    def _ours(self, number: int, model: str, path: str) -> None:
        """What is asked of whispyx alone, and of commands."""
        ours = next((engine for engine in self.engines if engine.name == OURS), None)
        if ours is None:
            return
        tell(f"round {number + 1}, {model}, commands")
        present = {engine.name for engine in self.engines}
        for name, command in suite.commands(self.setting, path).items():
            if name in present:
                self._command(name, model, command)
        self.add(OURS, model, "busy neighbour", lambda: suite.busy_round(ours, model, self.setting))
        self.add(OURS, model, "batch of windows", lambda: self._batch(path))
        if model == next(iter(self.paths)):
            self.add(OURS, "", "import", lambda: suite.import_round(self.setting))
            half = self.setting.sounds["half minute"][0]
            self.add(OURS, "", "mel", lambda: suite.mel_round(self.setting, path, half))

    def _command(self, name: str, model: str, command: suite.Command) -> None:
        what = f"{name}, {model}, command"
        self.add(name, model, what, lambda: suite.start_round(self.setting, name, model, command))

    def _batch(self, path: str) -> suite.Values:
        found = suite.batch_round(self.setting, path, (1, BATCH))
        return {"batch_ms": found[BATCH]["token_ms"], "batch_ratio": found[BATCH]["token_ms"] / found[1]["token_ms"]}


def turned(engines: list[Engine], number: int) -> list[Engine]:
    """Another one begins each round."""
    first = number % max(1, len(engines))
    return engines[first:] + engines[:first]


def tell(line: str) -> None:
    print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def hyperparameters(paths: dict[str, str]) -> dict[str, Any]:
    from whispyx._core.context import Context

    found = {}
    for model, path in paths.items():
        with Context.load(path) as context:
            found[model] = context.hparams
    return found


def notes(runner: Runner, machine_found: machine.Machine, hparams: dict[str, Any], medians: Any) -> Iterator[str]:
    options, m = runner.options, machine_found
    lengths = ", ".join(f"{name} {seconds:.0f} s" for name, (_, seconds) in runner.setting.sounds.items())
    kind = "best" if options.best else "median"
    yield f"{m.cpu}, {m.n_cpus} CPUs, {options.threads} threads, {kind} of {options.rounds}; {lengths}"
    known = [ns for ns in runner.regimes if ns is not None]
    yield f"memory regime: {', '.join(machine.regime(ns) for ns in known) or 'not known'}"
    if m.peaks:
        rates = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in m.peaks.items())
        yield f"the machine gives, by the kernels of {m.kernels}: {rates} GFLOP/s or GOP/s"
    if m.read_gb_s:
        yield f"{m.threads} threads read {machine.SWEPT_MB} MB again and again at {m.read_gb_s:.0f} GB/s"
    compute = runner.setting.made_of.get(OURS) or "exact"
    yield f"whispyx computes with: {compute}"
    yield from roofline.lines(hparams, medians, m, compute)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
        del os.environ[name]  # they slow down the peers that use it
    warning = load_warning()
    if warning:
        print(warning, file=sys.stderr)
    from tests import data
    from whispyx.errors import ModelError
    from whispyx.models import resolve
    from whispyx.plugins import load

    try:
        paths = {model: str(resolve(model)) for model in options.model or ("base", "tiny.en")}
        with tempfile.TemporaryDirectory() as folder:
            found = sounds.write_all(Path(folder), options.long)
            setting = suite.Setting(
                sys.executable, options.threads, found, sounds.shortest_clip(), options.compute, options.lock,
                not options.no_long,
            )  # fmt: skip
            runner = Runner(options, setting, paths)
            load()
            with suite.alone(setting):
                given = machine.look(options.threads)
            hparams = hyperparameters(paths)
            runner.run()
    except (data.Unavailable, ModelError) as error:
        print(error, file=sys.stderr)
        return 1
    tell("")
    middle = min if options.best else statistics.median
    medians = {place: {key: middle(values) for key, values in row.items()} for place, row in runner.rounds.items()}
    result = report.Report(
        f"whispyx and others, {time.strftime('%Y-%m-%d')}", list(paths), medians,
        [*([warning] if warning else []), *notes(runner, given, hparams, medians)], runner.missing(),
        {name: seconds for name, (_, seconds) in found.items()}, setting.texts,
    )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    more = {"machine": vars(given), "one_way_ns": runner.regimes, "threads": options.threads, "rounds": options.rounds}
    stored = report.as_json(result, runner.rounds, more)
    (options.out / "bench.json").write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (options.out / "bench.md").write_text(report.markdown(result), "utf-8")
    print(report.plain(result))
    if options.plot:
        from bench.plot import draw

        draw(stored, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
