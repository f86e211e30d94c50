"""What is to be reached: ratios of one run, each with its bar and its aim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.engines import OURS, OURS_AVX2, REFERENCE, REFERENCE_AVX2

Medians = Mapping[tuple[str, str], Mapping[str, float]]
"""By (engine, model): the median of each figure. Figures of no model are under (engine, "")."""
OPENVINO = ("OpenVINO bf16", "OpenVINO int8")


@dataclass(frozen=True)
class Bar:
    """`value` returns the figure that is compared, or None where something was not measured."""

    what: str
    bar: float
    aim: float
    value: Callable[[Medians], float | None]
    unit: str = ""

    def verdict(self, medians: Medians) -> str:
        value = self.value(medians)
        if value is None:
            return "not measured"
        return "aim met" if value <= self.aim else "met" if value <= self.bar else "not met"


def figure(medians: Medians, engine: str, model: str, key: str) -> float | None:
    return medians.get((engine, model), {}).get(key)


def ratio(key: str, model: str, others: tuple[str, ...], ours: str = OURS) -> Callable[[Medians], float | None]:
    """Ours over the best of the others."""

    def value(medians: Medians) -> float | None:
        mine = figure(medians, ours, model, key)
        theirs = [found for name in others if (found := figure(medians, name, model, key)) is not None]
        return mine / min(theirs) if mine is not None and theirs else None

    return value


def plain(key: str, model: str = "") -> Callable[[Medians], float | None]:
    return lambda medians: figure(medians, OURS, model, key)


def _bars() -> list[Bar]:
    both = ("base", "tiny.en")
    cpp = (REFERENCE,)
    found = [
        Bar(f"encoder with cross keys and values, {m}, against whisper.cpp", 0.17, 0.10, ratio("encode_ms", m, cpp))
        for m in both
    ]
    found += [
        Bar(f"greedy token, everything included, {m}, against whisper.cpp", 0.45, 0.30, ratio("token_ms", m, cpp))
        for m in both
    ]
    found.append(Bar("step of five beams, base, against whisper.cpp", 0.35, 0.20, ratio("beam_ms", "base", cpp)))
    found += [
        Bar(f"end to end, jfk, {m}, against OpenVINO GenAI at its best", 0.70, 0.50, ratio("jfk_s", m, OPENVINO))
        for m in both
    ]
    found += [
        Bar("end to end, long, base, against the same, by windows that do not know the text before", 0.50, 0.38,
            ratio("long_alone_s", "base", OPENVINO)),
        Bar("the same, but ours know the text before them", 0.50, 0.38, ratio("long_s", "base", OPENVINO)),
        Bar("end to end, long, base, against faster-whisper int8", 0.30, 0.20,
            ratio("long_s", "base", ("faster-whisper int8",))),
        Bar("batch of 8 windows: token per window, base, against a batch of 1", 0.50, 0.30,
            plain("batch_ratio", "base")),
        Bar("AVX2: end to end, jfk, base, against whisper.cpp built for AVX2", 0.60, 0.40,
            ratio("jfk_s", "base", (REFERENCE_AVX2,), OURS_AVX2)),
        Bar("slowdown beside one busy process, base", 2.5, 2.0, plain("busy_ratio", "base")),
        Bar("mel of 30 s, one thread", 1.5, 0.4, plain("mel_ms"), "ms"),
        Bar("import whispyx", 0.2, 0.1, plain("import_s"), "s"),
        Bar("process start to text, 3 s clip, base, against whisper-cli", 0.35, 0.20, ratio("start_s", "base", cpp)),
        Bar("peak memory, base, against whisper.cpp", 1.0, 0.7, ratio("peak_mib", "base", cpp)),
        Bar("load, base f16, against whisper.cpp", 0.5, 0.5, ratio("load_ms", "base", cpp)),
        Bar("memory that loading takes, base f16, over the file's size", 1.1, 1.1, plain("load_peak_ratio", "base")),
    ]  # fmt: skip
    return found


BARS = tuple(_bars())
