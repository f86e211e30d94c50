"""How the cost of recognition grows: with the length of the recording, beams, windows side by side, threads, the model.

python -m bench.scaling                            tiny.en and base
python -m bench.scaling --model base --compute bf16 --rounds 5 --json

Everything is measured with whispyx alone, in one process per model and number of threads; best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import sounds, suite
from bench.engines import OURS, Session, all_engines
from bench.measure import at_least_one, default_threads, load_warning
from whispyx._core.kernels import COMPUTE

LENGTHS_S = (3, 11, 30, 60, 120)
BEAMS = (1, 2, 3, 5, 8)
TOGETHER = (1, 2, 4, 8)


def thread_counts(most: int) -> list[int]:
    """1, 2, 4, ... and the most."""
    return sorted({most, *(n for n in (1, 2, 4, 8, 16) if n < most)})


Row = tuple[str, str, float]


def of_model(setting: suite.Setting, model: str, path: str, rounds: int) -> Iterator[Row]:
    """Rows (what grows, how much of it, milliseconds)."""
    engine = next(engine for engine in all_engines(setting.python) if engine.name == OURS)
    jfk = setting.sounds["jfk"][0]
    with suite.alone(setting), Session(engine, model, setting.threads, setting.compute) as session:
        session.load()
        session.transcribe(jfk, suite.LANGUAGE)
        for name, (sound, seconds) in setting.sounds.items():
            if name != "jfk":
                runs = [session.transcribe(sound, suite.LANGUAGE) for _ in range(rounds)]
                yield "length, s", f"{seconds:g}", 1e3 * min(run.seconds for run in runs)
        for beams in BEAMS:
            yield "beams, ms per step", str(beams), min(per_token(session, jfk, beams) for _ in range(rounds))
    found: dict[int, list[float]] = {}
    for _ in range(rounds):
        for n, values in suite.batch_round(setting, path, TOGETHER).items():
            found.setdefault(n, []).append(values["token_ms"])
    for n, spent in found.items():
        yield "windows together, ms per token of one", str(n), min(spent)
    for threads in thread_counts(setting.threads):
        with suite.alone(setting), Session(engine, model, threads, setting.compute) as session:
            session.load()
            session.transcribe(jfk, suite.LANGUAGE)
            runs = [session.transcribe(jfk, suite.LANGUAGE) for _ in range(rounds)]
        yield "threads, encoder", str(threads), min(run.encode_ms or 0.0 for run in runs)
        yield "threads, token", str(threads), min(run.per_token_ms() or 0.0 for run in runs)


def per_token(session: Session, sound: str, beams: int) -> float:
    return session.transcribe(sound, suite.LANGUAGE, beams).per_token_ms() or 0.0


def write_lengths(folder: Path) -> dict[str, tuple[str, float]]:
    """The beginning of a long recording, of several lengths, and a speech."""
    from tests import data

    long = sounds.default_long()
    found = {"jfk": (str(folder / "jfk.npy"), 11.0)}
    np.save(found["jfk"][0], sounds.read(data.jfk_wav()))
    for seconds in LENGTHS_S:
        path = folder / f"{seconds}.npy"
        np.save(path, long[: seconds * sounds.RATE])
        found[f"{seconds} s"] = (str(path), float(seconds))
    return found


def table(rows: dict[str, list[Row]]) -> str:
    """A line for each quantity, a column for each model, and how much of the first line's cost a line has."""
    models = list(rows)
    lines = [f"{'':40}" + "".join(f"{model:>22}" for model in models)]
    for i, (what, much, _) in enumerate(rows[models[0]]):
        cells = []
        for model in models:
            first = next(ms for name, _, ms in rows[model] if name == what)
            ms = rows[model][i][2]
            cells.append(f"{ms:12.2f} ms {ms / first:5.2f}x")
        lines.append(f"{what:34}{much:>6}" + "".join(f"{cell:>22}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", action="append", help="tiny.en, base, or both (default)")
    parser.add_argument("--threads", type=at_least_one, default=default_threads(), help="the most threads")
    parser.add_argument("--rounds", type=at_least_one, default=3)
    parser.add_argument("--compute", choices=COMPUTE)
    parser.add_argument("--lock", type=Path, help="file to lock during each measurement, on a machine that is shared")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    warning = load_warning()
    if warning:
        print(warning, file=sys.stderr)
    from tests import data
    from whispyx.errors import ModelError
    from whispyx.models import resolve

    rows: dict[str, list[Row]] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = write_lengths(Path(folder))
            setting = suite.Setting(
                sys.executable, options.threads, found, sounds.shortest_clip(), options.compute, options.lock
            )
            for model in options.model or ("tiny.en", "base"):
                rows[model] = list(of_model(setting, model, str(resolve(model)), options.rounds))
    except (data.Unavailable, ModelError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        settings: dict[str, Any] = {"threads": options.threads, "rounds": options.rounds, "warning": warning}
        print(json.dumps({**settings, "results": rows}, indent=1))
    else:
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
