"""The table in text, markdown and JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.bars import BARS, Medians
from bench.engines import OURS, REFERENCE

ROWS = (
    ("encode_ms", "encode, ms per window"),
    ("token_ms", "greedy, ms per token"),
    ("beam_ms", "five beams, ms per step"),
    ("jfk_s", "jfk, s"),
    ("lecture_s", "lecture, s"),
    ("long_s", "long, s"),
    ("long_alone_s", "long, no window knows the text before it, s"),
    ("load_ms", "load, ms"),
    ("start_s", "process start to text, s"),
    ("peak_mib", "peak memory, MiB"),
    ("load_peak_ratio", "memory that loading takes, over the file's size"),
)
OTHERS = (
    ("mel_ms", "mel of 30 s, one thread, ms"),
    ("import_s", "import whispyx, s"),
    ("import_model_s", "from whispyx import Model, s"),
    ("busy_ratio", "slowdown beside one busy process"),
    ("batch_ms", "batch of 8, ms per token of a window"),
    ("batch_ratio", "batch of 8, token per window over a batch of 1"),
)


@dataclass
class Report:
    """Everything one run found."""

    title: str
    models: Sequence[str]
    medians: Medians
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lengths: dict[str, float] = field(default_factory=dict)
    texts: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def engines(self, model: str) -> list[str]:
        return list(dict.fromkeys(engine for engine, of in self.medians if of == model))


def rows_of(report: Report, model: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of one model's table: a column an engine, and behind each peer's figure ours over it."""
    engines = report.engines(model)
    rows = []
    for key, label in ROWS:
        values = {name: report.medians[name, model].get(key) for name in engines}
        if not any(value is not None for value in values.values()):
            continue
        mine = values.get(OURS)
        cells = []
        for name in engines:
            value = values[name]
            if value is None:
                cells.append("–")
            elif name.startswith(OURS) or mine is None:
                cells.append(number(value))
            else:
                cells.append(f"{number(value)} ({mine / value:.2f})")
        rows.append([label, *cells])
    return [model, *engines], rows


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def bar_rows(report: Report) -> list[list[str]]:
    rows = []
    for bar in BARS:
        value = bar.value(report.medians)
        unit = f" {bar.unit}" if bar.unit else ""
        shown = "–" if value is None else f"{value:.3g}{unit}" if value < 10 else f"{value:.0f}{unit}"
        rows.append([bar.what, f"{bar.bar:g}{unit}", f"{bar.aim:g}{unit}", shown, bar.verdict(report.medians)])
    return rows


def other_rows(report: Report) -> list[list[str]]:
    rows = []
    for key, label in OTHERS:
        for (engine, model), values in report.medians.items():
            if key in values:
                rows.append([label, f"{engine}{f', {model}' if model else ''}", number(values[key])])
    return rows


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Fewest words to insert, delete or replace (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, two in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != two))
    return row[-1]


def text_lines(report: Report) -> list[str]:
    """How many words of ours each other engine has otherwise."""
    lines = []
    for model in report.models:
        for sound in dict.fromkeys(s for _, m, s in report.texts if m == model):
            mine = report.texts.get((OURS, model, sound))
            if mine is None:
                continue
            ours = words(mine)
            others = [
                f"{engine} {distance(words(text), ours)}"
                for (engine, m, s), text in report.texts.items()
                if (m, s) == (model, sound) and engine != OURS
            ]
            if others:
                lines.append(f"{model}, {sound}: of {len(ours)} words differ from ours: {', '.join(others)}")
    return lines


def markdown(report: Report) -> str:
    parts = [f"# {report.title}", "", *(f"- {note}" for note in report.notes), ""]
    parts += [f"Not run: {line}." for line in report.missing]
    parts += ["", f"In brackets: {OURS} over that engine; below 1 is better.", ""]
    for model in report.models:
        head, rows = rows_of(report, model)
        parts += [*md_table(head, rows), ""]
    parts += [*md_table(["also", "of", "value"], other_rows(report)), ""]
    parts += [*md_table(["ratio", "bar", "aim", "measured", ""], bar_rows(report)), ""]
    parts += ["Words:", "", *(f"- {line}" for line in text_lines(report)), ""]
    return "\n".join(parts)


def md_table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def plain(report: Report) -> str:
    """The same for a terminal, columns aligned."""
    parts = [report.title, *report.notes, *(f"not run: {line}" for line in report.missing)]
    for model in report.models:
        head, rows = rows_of(report, model)
        parts += ["", *aligned([head, *rows])]
    parts += ["", *aligned(other_rows(report)), ""]
    parts += aligned([["ratio", "bar", "aim", "measured", ""], *bar_rows(report)])
    return "\n".join([*parts, "", *text_lines(report)])


def aligned(rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def as_json(report: Report, rounds: dict[tuple[str, str], dict[str, list[float]]], more: dict[str, Any]) -> Any:
    """Everything, so that a table or a plot can be made again."""
    return {
        "title": report.title,
        **more,
        "notes": report.notes,
        "missing": report.missing,
        "lengths_s": report.lengths,
        "figures": [
            {"engine": engine, "model": model, "medians": dict(report.medians[engine, model]), "rounds": values}
            for (engine, model), values in rounds.items()
        ],
        "bars": [
            {"what": bar.what, "bar": bar.bar, "aim": bar.aim, "value": bar.value(report.medians),
             "verdict": bar.verdict(report.medians)}
            for bar in BARS
        ],
        "texts": [{"engine": e, "model": m, "sound": s, "text": text} for (e, m, s), text in report.texts.items()],
        "reference": REFERENCE,
    }  # fmt: skip
