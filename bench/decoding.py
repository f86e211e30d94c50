"""Decoding and voice activity, whispyx beside whisper.cpp: one greedy token, one step of five beams, one minute of VAD.

python -m bench.decoding                           tiny.en and base on jfk.wav, the voice model on a lecture
python -m bench.decoding --model base --rounds 9

A step counts everything that happens between two tokens: the decoder's graph, the rules, the choice. It is what a
whole transcription takes, less its encoder and spectrogram, over the tokens of the result. Drawn beams of whisper.cpp
and the best ones of whispyx end after different numbers of steps, so both are given per token of their own text.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import MissingPeer, as_array, default_threads, engines, load_warning

BEAMS = 5
Rounds = dict[str, dict[str, list[float]]]


def per_token_ms(answer: dict[str, Any]) -> float:
    """Milliseconds per token of a run over one window, encoder and spectrogram left out."""
    timings = answer["timings"]
    tokens = sum(len(segment["tokens"]) for segment in answer["segments"])
    return float((answer["seconds"] * 1e3 - timings["encode_ms"]) / tokens)


def decoding_rows(worker: Any, model: str, samples: str, threads: int) -> Iterator[tuple[str, float]]:
    """Measure one engine in a process of its own, warm."""
    name = Path(model).stem.removeprefix("ggml-")
    worker("load", model=model, flash_attn=True)
    params: dict[str, Any] = {"n_threads": threads, "temperature_inc": 0.0, "language": "en"}
    beams = {**params, "strategy": "beam_search", "beam_size": BEAMS}
    worker("full", samples=samples, params=params)
    greedy = worker("full", samples=samples, params=params)
    yield f"{name}: decoder, ms per token", greedy["timings"]["decode_ms"]
    yield f"{name}: greedy, ms per token", per_token_ms(greedy)
    worker("full", samples=samples, params=beams)
    yield f"{name}: {BEAMS} beams, ms per step", per_token_ms(worker("full", samples=samples, params=beams))


def measure(options: argparse.Namespace, talk: Path, lecture: Path, voice: Path) -> Rounds:
    """Let the engines take turns, round by round."""
    from whispyx.models import resolve

    models = [str(resolve(name)) for name in options.model]
    found: Rounds = {}
    with as_array(talk) as samples, as_array(lecture) as minute:
        for _ in range(options.rounds):
            for engine, start in engines(not options.portable, options.compute).items():
                with start() as worker:
                    rows = [row for model in models for row in decoding_rows(worker, model, samples, options.threads)]
                    speech = {
                        "vad_model": str(voice),
                        "samples": minute,
                        "vad_params": {},
                        "n_threads": options.threads,
                    }
                    worker("speech", **speech)
                    rows.append(("voice activity, ms per minute", worker("speech", **speech)["seconds"] * 1e3))
                for row, value in rows:
                    found.setdefault(row, {}).setdefault(engine, []).append(value)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decoding", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", action="append", help="name or path (default: tiny.en and base)")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compute", default="auto", help="precision of whispyx (default: auto)")
    parser.add_argument("--portable", action="store_true", help="compare with the wheel instead of the native build")
    options = parser.parse_args(arguments)
    options.model = options.model or ["tiny.en", "base"]
    warning = load_warning()
    if warning:
        print(warning, file=sys.stderr)
    from tests import data

    try:
        found = measure(options, data.jfk_wav(), data.lecture_wav(), data.silero_ggml())
    except (MissingPeer, data.Unavailable) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.threads} threads, median of {options.rounds}, flash attention in both")
    for row, engines_of_row in found.items():
        medians = {engine: statistics.median(values) for engine, values in engines_of_row.items()}
        columns = "".join(f"{engine:>13} {value:8.2f}" for engine, value in medians.items())
        print(f"{row:34}{columns}   ratio {medians['whispyx'] / medians['whisper.cpp']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
