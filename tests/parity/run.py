"""Runs both engines over the grid and prints what they agree on.

    python -m tests.parity.run                       everything
    python -m tests.parity.run --model tiny.en --filter beam
    python -m tests.parity.run --out docs/parity.md

The exit status is 1 when a difference stays unexplained.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests import data
from tests.parity.compare import Difference, compare
from tests.parity.engines import Engines, reference_python
from tests.parity.explain import repaired
from tests.parity.grid import MODELS, Case, grid
from tests.parity.judge import near_path, near_tie
from tools.workers.client import WorkerError

EQUAL: Final = "equal"
EXPLAINED: Final = "explained"
NEAR_TIE: Final = "near tie"
UNEXPLAINED: Final = "UNEXPLAINED"
COMMAND: Final = "python -m tests.parity.run --out docs/parity.md"


@dataclass(frozen=True)
class Row:
    """One line of the table. `detail` names defects, or says where an unexplained difference is."""

    case: Case
    raw: Difference
    verdict: str
    detail: str = ""

    def cells(self) -> list[str]:
        case, raw = self.case, self.raw
        yes = {True: "yes", False: "no"}
        units = "–" if raw.units is None else str(raw.units)
        verdict = f"{self.verdict}: {self.detail}" if self.detail else self.verdict
        return [case.model, case.sound, case.group, case.name, yes[raw.text], yes[raw.tokens], units, verdict]


HEAD: Final = ["model", "sound", "group", "case", "same text", "same tokens", "times, cs", "verdict"]


def examine(case: Case, engines: Engines) -> Row:
    """Run a case on both engines and say what their difference is."""
    theirs = engines.theirs(case)
    try:
        ours = engines.ours(case)
    except WorkerError as error:
        return Row(case, Difference(False, False, None), UNEXPLAINED, str(error).strip().splitlines()[0][:200])
    raw = compare(case, ours, theirs)
    if raw.none:
        return Row(case, raw, EQUAL)
    mended, defects = repaired(case, theirs, engines)
    after = compare(case, ours, mended)
    named = ", ".join(defects)
    if after.none and "?" not in defects:
        return Row(case, raw, EXPLAINED, named)
    tie = near_tie(case, ours, theirs)
    if not tie and case.aheads and compare(replace(case, aheads=None), ours, mended).none:
        tie = near_path(case, ours, theirs)
    if tie:
        return Row(case, raw, NEAR_TIE, tie)
    return Row(case, raw, UNEXPLAINED, f"{after.where or raw.where}{f' (after {named})' if named else ''}")


def table(rows: list[Row]) -> str:
    """The rows as Markdown, and how many there are of each verdict."""
    lines = [HEAD, ["---"] * len(HEAD), *[row.cells() for row in rows]]
    counts = Counter(row.verdict for row in rows)
    total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (EQUAL, EXPLAINED, NEAR_TIE, UNEXPLAINED))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{len(rows)} combinations: {total}.\n"


def _progress(done: int, of: int, row: Row, seconds: float) -> None:
    terminal = sys.stderr.isatty()
    if row.verdict == UNEXPLAINED:
        clear = "\r\033[K" if terminal else ""
        print(f"{clear}{row.case.title}: {row.verdict}: {row.detail}", file=sys.stderr)
    if terminal:
        print(f"\r\033[K{done}/{of} {seconds:.0f} s  {row.case.title}", end="", file=sys.stderr, flush=True)


def run(cases: list[Case], python: Path) -> list[Row]:
    """Examine cases; those whose sound cannot be had are left out and named."""
    rows, start = [], time.monotonic()
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, Engines(python, Path(folder)) as engines:
        for number, case in enumerate(cases, 1):
            try:
                rows.append(examine(case, engines))
            except data.Unavailable as reason:
                missing[case.sound] = str(reason)
                continue
            _progress(number, len(cases), rows[-1], time.monotonic() - start)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        seconds = time.monotonic() - start
        print(
            f"{seconds:.0f} s; whisper.cpp was asked {engines.asked} times, {engines.kept} answers were kept",
            file=sys.stderr,
        )
    for sound, why in missing.items():
        print(f"left out: {sound}: {why}", file=sys.stderr)
    return rows


ABOUT: Final = f"""# Parity with whisper.cpp 1.8.5

The same models, sounds and settings on both engines; this makes the table anew:

    {COMMAND}

"same text", "same tokens" and the largest distance of times, in units of 10 ms, compare what the two engines gave. The
verdict is

- *equal*: nothing differs by more than one unit;
- *explained*: whisper.cpp's answer, freed of the defects named ([differences](differences.md)), equals ours;
- *near tie*: two continuations are so close that rounding decides: arithmetic in float64 allows both answers. The
  numbers are how far apart the two are, in logits (without temperature) or in probability (with it).

whisper.cpp runs without flash attention, which attends to padding there (B26), on models and states that nothing has
used before, so that its random numbers begin at their seeds (B9); whispyx draws beams at random as whisper.cpp does
(B10), with the same seeds. Prompts are token ids where the two tokenizers might differ (B23).

"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parity.run", description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, help="only this model")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only cases with this in their title")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the table there")
    parser.add_argument("--list", action="store_true", help="print the titles of the cases and stop")
    options = parser.parse_args(arguments)
    cases = [c for c in grid() if options.model in (None, c.model) and options.filter in c.title]
    if options.list:
        print("\n".join(case.title for case in cases))
        return 0
    python = reference_python()
    if python is None:
        parser.error("whisper.cpp is not set up: python tools/peers.py --native pywhispercpp")
    rows = run(cases, python)
    print(table(rows))
    if options.out:
        options.out.write_text(ABOUT + table(rows), encoding="utf-8")
    return int(not rows or any(row.verdict == UNEXPLAINED for row in rows))


if __name__ == "__main__":
    sys.exit(main())
