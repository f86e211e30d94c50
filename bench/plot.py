"""The stored result of a benchmark as a picture.

python -m bench.plot build/bench/bench.json docs/images/performance.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PANELS = (
    ("encode_ms", "encoder, ms per window"),
    ("token_ms", "greedy token, ms"),
    ("jfk_s", "11 s of speech, s"),
    ("long_s", "long recording, s"),
)
OURS, OTHERS = "#0b6e4f", "#9aa5b1"


def draw(stored: dict[str, Any], target: Path) -> None:
    """Bars for each figure and model, ours in colour; shorter is better."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise SystemExit(f"the plot needs matplotlib: pip install 'whispyx[bench]' ({error})") from error
    models = list(dict.fromkeys(row["model"] for row in stored["figures"] if row["model"]))
    figure, axes = pyplot.subplots(
        len(models), len(PANELS), figsize=(3.6 * len(PANELS), 0.5 + 2.4 * len(models)), squeeze=False
    )
    for i, model in enumerate(models):
        for k, (key, label) in enumerate(PANELS):
            panel(axes[i][k], stored, model, key, f"{model}: {label}" if k == 0 else label, names=k == 0)
    figure.suptitle(f"{stored['title']} · {stored['machine']['cpu']}, {stored['threads']} threads", fontsize=9)
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)


def panel(axes: Any, stored: dict[str, Any], model: str, key: str, label: str, *, names: bool) -> None:
    """One figure of one model, by engine."""
    engines = [row["engine"] for row in stored["figures"] if row["model"] == model]
    engines = [name for name in engines if not name.endswith("AVX2")]
    values = {row["engine"]: row["medians"].get(key) for row in stored["figures"] if row["model"] == model}
    places = range(len(engines))
    lengths = [values[name] or 0.0 for name in engines]
    colours = [OURS if name.startswith("whispyx") else OTHERS for name in engines]
    axes.barh(places, lengths, color=colours)
    axes.set_yticks(places, engines if names else [""] * len(engines), fontsize=7)
    axes.invert_yaxis()
    axes.set_title(label, fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlim(0, 1.2 * max([*lengths, 1e-9]))
    for place, name in zip(places, engines, strict=True):
        value = values[name]
        axes.text(value or 0.0, place, f" {value:.3g}" if value else " not told", va="center", fontsize=6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plot", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("stored", type=Path, help="bench.json")
    parser.add_argument("picture", type=Path, help="file to write")
    options = parser.parse_args(arguments)
    draw(json.loads(options.stored.read_text("utf-8")), options.picture)


if __name__ == "__main__":
    main()
