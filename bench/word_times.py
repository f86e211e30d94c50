"""How far words are from where they are spoken: five clips of an audio book against their forced alignments.

    python -m bench.word_times
    python -m bench.word_times --faster-whisper FOLDER     # a CTranslate2 model of the same size, and the peer set up

Every engine recognises the clips in this run; the figures are those of the words that it recognised.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import whispyx.plugins
from tests import data
from tests.oracle.words import compare
from tools import peers
from tools.workers import client
from whispyx._core.align.heads import preset_for, resolve
from whispyx._core.align.words import group
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full

Words = list[tuple[str, float, float]]

FASTER_WHISPER = """
import json, sys
from faster_whisper import WhisperModel
model = WhisperModel(sys.argv[1], device="cpu", cpu_threads=int(sys.argv[2]))
for path in sys.argv[3:]:
    segments, _ = model.transcribe(path, language="en", beam_size=1, temperature=0.0, word_timestamps=True)
    print(json.dumps([(w.word, w.start, w.end) for s in segments for w in s.words]), flush=True)
"""


def ours(ctx: Any, wav: Path, n_threads: int) -> dict[str, Words]:
    """Words, and the tokens' plain boundaries by attention."""
    samples, _ = soundfile.read(wav, dtype="float32")
    params = FullParams(n_threads=n_threads, temperature_inc=0.0, word_timestamps=True, token_timestamps=True)
    with ctx.new_state() as state:
        result = full(ctx, state, params, samples)
    found: dict[str, Words] = {"whispyx: words": [], "whispyx: attention alone": [], "whispyx: loudness guess": []}
    for segment in result.segments:
        for word in segment.words:
            tokens, text = [segment.tokens[i] for i in word.tokens], word.text.decode("utf-8", "replace")
            first, last = tokens[0], spoken_last(tokens)
            found["whispyx: words"].append((text, word.t0, word.t1))
            found["whispyx: attention alone"].append((text, first.t_dtw_start / 100, last.t_dtw_end / 100))
            found["whispyx: loudness guess"].append((text, first.t0 / 100, last.t1 / 100))
    return found


def spoken_last(tokens: Sequence[Any]) -> Any:
    """The last token of a word that is no mark: marks are written in pauses."""
    said = [token for token in tokens if any(ch.isalnum() for ch in token.text.decode("utf-8", "replace"))]
    return said[-1] if said else tokens[-1]


def theirs(worker: client.Worker, ctx: Any, wav: Path, n_threads: int) -> dict[str, Words]:
    """whisper.cpp: its guess from loudness, and its marks: a token begins at its mark and ends at the next one's."""
    samples, _ = soundfile.read(wav, dtype="float32")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sound.npy"
        np.save(path, samples)
        params = {"n_threads": n_threads, "temperature_inc": 0.0, "token_timestamps": True, "language": "en"}
        segments = worker("full", samples=str(path), params=params)["segments"]
    guessed: Words = []
    marked: Words = []
    for segment in segments:
        text = [i for i, token in enumerate(segment["tokens"]) if token < ctx.vocab.eot]
        pieces = [ctx.vocab.token_bytes(segment["tokens"][i]) for i in text]
        marks = [segment["t_dtw"][i] for i in text] + [segment["t1"]]
        for word in group(pieces):
            name = b"".join(pieces[k] for k in word).decode("utf-8", "replace")
            said = [k for k in word if any(ch.isalnum() for ch in pieces[k].decode("utf-8", "replace"))] or word
            guessed.append((name, segment["token_t0"][text[word[0]]] / 100, segment["token_t1"][text[said[-1]]] / 100))
            marked.append((name, marks[word[0]] / 100, marks[said[-1] + 1] / 100))
    return {"whisper.cpp: loudness guess": guessed, "whisper.cpp: DTW marks": marked}


def faster_whisper(folder: Path, clips: list[data.Clip], n_threads: int) -> dict[str, list[Words]]:
    python = peers.python("faster-whisper")
    if python is None:
        print("faster-whisper is not set up: python tools/peers.py faster-whisper", file=sys.stderr)
        return {}
    command = [str(python), "-c", FASTER_WHISPER, str(folder), str(n_threads), *(str(clip.wav) for clip in clips)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {"faster-whisper: words": [[(w, s, e) for w, s, e in json.loads(line)] for line in lines]}


def line(name: str, found: list[Words], clips: list[data.Clip]) -> str:
    starts: list[float] = []
    ends: list[float] = []
    n_true = 0
    for words, clip in zip(found, clips, strict=True):
        errors = compare(words, clip.words)
        starts, ends, n_true = starts + errors.starts, ends + errors.ends, n_true + errors.n_true
    cells = []
    for errors_s in (starts, ends):
        ms = 1000 * np.abs(errors_s)
        cells.append(f"{np.median(ms):5.0f} {np.percentile(ms, 90):5.0f} {1000 * np.median(errors_s):+6.0f}")
    return f"{name:30s} {cells[0]}   {cells[1]}   {len(starts):3d} of {n_true}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.word_times", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", default="base", choices=("base", "tiny.en"))
    parser.add_argument("--threads", type=int, default=min(4, len(os.sched_getaffinity(0))))
    parser.add_argument("--faster-whisper", type=Path, metavar="FOLDER", help="CTranslate2 model to compare with")
    options = parser.parse_args()
    clips, model = data.librivox_clips(), data.model_file(options.model)
    whispyx.plugins.load()
    found: dict[str, list[Words]] = {}
    with Context.load(str(model)) as ctx:
        preset, n_top = preset_for(ctx.hparams)
        ctx.set_aheads(resolve(preset, n_top, None, ctx.hparams))
        for clip in clips:
            for name, words in ours(ctx, clip.wav, options.threads).items():
                found.setdefault(name, []).append(words)
        python = peers.python("pywhispercpp")
        if python is None:
            print("whisper.cpp is not set up: python tools/peers.py pywhispercpp", file=sys.stderr)
        else:
            with client.whispercpp(python) as worker:
                worker("load", model=str(model), flash_attn=False, aheads={"preset": preset})
                for clip in clips:
                    for name, words in theirs(worker, ctx, clip.wav, options.threads).items():
                        found.setdefault(name, []).append(words)
    if options.faster_whisper is not None:
        found |= faster_whisper(options.faster_whisper, clips, options.threads)
    print(f"{options.model}; errors in ms: median, 90th percentile, bias")
    print(f"{'':30s} {'starts':18s}   {'ends':18s}   words recognised")
    for name, words_by_clip in found.items():
        print(line(name, words_by_clip, clips))


if __name__ == "__main__":
    main()
