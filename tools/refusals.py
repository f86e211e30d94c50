"""Loads damaged copies of models with every reader, and shows what became of them and what that cost.

    python tools/refusals.py                            every reader, random weights and tiny.en, 200 copies each
    python tools/refusals.py --cases 0                  all copies there are
    python tools/refusals.py --format gguf --size small only these
    python tools/refusals.py --list                     what is tried
    python tools/refusals.py -v                         what each copy is, and what was said of it

Each copy is loaded in a process of its own. The exit status is 0 when every copy was loaded or refused as it should be,
no refusal took more than 5 s, and no process took more memory than twice the model and 200 MB. docs/testing.md tells
more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.damaged.attempts import Outcome  # noqa: E402
from tests.damaged.corpora import CASES, SIZES, Corpus, corpus  # noqa: E402
from tests.data import Unavailable  # noqa: E402

CRASHES: Final = ("crashed", "hung")
HEADINGS: Final = ("reader", "weights", "cases", "refused", "loaded", "crashed", "other faults", "slowest refusal",
                   "peak memory", "of the file")  # fmt: skip
MB: Final = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What a refusal may cost.

    Attributes
    ----------
    seconds : float
        Until it is refused.
    times, more : float, int
        Memory over that of before: so many times the file, and so many bytes more.
    """

    seconds: float = 5.0
    times: float = 2.0
    more: int = 200 * MB

    def broken(self, outcome: Outcome, n_bytes: int) -> str | None:
        """Return what is wrong with an outcome, or None."""
        if outcome.fault:
            return f"{outcome.how}: {outcome.message}"
        if outcome.how == "refused" and outcome.seconds > self.seconds:
            return f"it took {outcome.seconds:.1f} s to refuse it"
        if outcome.grown > self.times * n_bytes + self.more:
            return f"it took {outcome.grown / MB:.0f} MB"
        return None


@dataclass(frozen=True)
class Row:
    """What became of one corpus: its cells for the table, and what is wrong by the name of the damage."""

    cells: tuple[str, ...]
    wrong: dict[str, str]


def row(made: Corpus, outcomes: Iterable[Outcome], limits: Limits, verbose: bool = False) -> Row:
    """Sum up the outcomes of a corpus."""
    count: Counter[str] = Counter()
    wrong, slowest, peak, n_bytes = {}, 0.0, 0, made.n_bytes
    for outcome in outcomes:
        if verbose:
            print(f"  {outcome.name}: {outcome.how} {outcome.message}", flush=True)
        count[outcome.how] += 1
        if outcome.how == "refused":
            slowest = max(slowest, outcome.seconds)
        peak = max(peak, outcome.grown)
        problem = limits.broken(outcome, n_bytes)
        if problem is not None:
            wrong[outcome.name] = problem
    crashed = sum(count[how] for how in CRASHES)
    others = count.total() - crashed - count["refused"] - count["loaded"]
    cells = (made.reader, made.size, count.total(), count["refused"], count["loaded"], crashed, others,
             f"{slowest:.2f} s", f"{peak / MB:.0f} MB", f"{peak / n_bytes:.2f}")  # fmt: skip
    return Row(tuple(str(cell) for cell in cells), wrong)


def table(rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", nargs="+", choices=list(CASES), default=list(CASES), help="readers (all)")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=list(SIZES), help="random weights, tiny.en (both)")
    parser.add_argument("--cases", type=int, default=200, help="copies for each reader and size, 0: all (%(default)s)")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="limit of a refusal (%(default)s)")
    parser.add_argument("--list", action="store_true", help="name the damages and load nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="what became of each copy")
    options = parser.parse_args(arguments)
    limits = Limits(seconds=options.seconds)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="whispyx-damaged-") as top:
        for size in options.size:
            for reader in options.format:
                try:
                    made = corpus(reader, size, Path(top) / size, options.cases or None)
                except Unavailable as error:
                    print(f"refusals: {reader} with weights of tiny.en was left out: {error}", file=sys.stderr)
                    continue
                if options.list:
                    print(*(f"{reader} {size}: {damage.name}" for damage in made.damages), sep="\n")
                    continue
                scratch = Path(top) / "copy"
                scratch.mkdir(exist_ok=True)
                rows.append(row(made, made.run(scratch), limits, options.verbose))
                for name, problem in rows[-1].wrong.items():
                    print(f"refusals: {reader} {size}: {name}: {problem}", file=sys.stderr, flush=True)
                made.tidy(scratch)
    if not options.list:
        print(table([found.cells for found in rows]))
    return int(any(found.wrong for found in rows) or not (rows or options.list))


if __name__ == "__main__":
    sys.exit(main())
