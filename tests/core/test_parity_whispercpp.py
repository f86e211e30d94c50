"""Real models on real speech: the same tokens and segment times as whisper.cpp 1.8.5, greedily and without fallback.

whisper.cpp runs in an environment and process of its own (tools/peers.py). Each model, recording and way of attention
is a test of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from tests import data
from tools.workers.client import Worker, whispercpp, whispyx

GREEDY = {"temperature_inc": 0.0, "n_threads": 1, "language": "en"}
FLASH = pytest.mark.parametrize("flash_attn", [False, True], ids=["plain", "flash"])
N_CLIPS = 5
WORST_WORD_ERROR_RATE = 0.25  # base on clean read speech is near 0.05; a broken front end or decoder is far above


@pytest.fixture(scope="module")
def peer(whispercpp_python: Path) -> Iterator[Worker]:
    with whispercpp(whispercpp_python) as worker:
        yield worker


@pytest.fixture(scope="module")
def ours() -> Iterator[Worker]:
    with whispyx() as worker:
        yield worker


def as_array(wav: Path, folder: Path) -> Path:
    """Put the samples where both workers can read them without a sound library."""
    samples, rate = soundfile.read(wav, dtype="float32")
    assert rate == 16000 and samples.ndim == 1
    out = folder / f"{Path(wav).stem}.npy"
    np.save(out, samples)
    return out


def transcribe(worker: Worker, model: Path, samples: Path, flash_attn: bool) -> dict[str, Any]:
    worker("load", model=str(model), flash_attn=flash_attn)
    answer = worker("full", samples=str(samples), params=GREEDY)
    assert answer["code"] == 0
    return answer


def shown(answer: dict[str, Any]) -> list[tuple[int, int, list[int]]]:
    return [(s["t0"], s["t1"], s["tokens"]) for s in answer["segments"]]


def text_of(answer: dict[str, Any]) -> str:
    return b"".join(bytes.fromhex(s["text_hex"]) for s in answer["segments"]).decode()


def assert_same(peer: Worker, ours: Worker, model: str, wav: Path, flash_attn: bool, tmp_path: Path) -> str:
    samples = as_array(wav, tmp_path)
    path = data.model_file(model)
    theirs = transcribe(peer, path, samples, flash_attn)
    mine = transcribe(ours, path, samples, flash_attn)
    print(f"{model}, {Path(wav).name}: {text_of(mine)!r}")
    assert shown(mine) == shown(theirs)
    assert [s["text_hex"] for s in mine["segments"]] == [s["text_hex"] for s in theirs["segments"]]
    return text_of(mine)


@FLASH
@pytest.mark.parametrize("model", ["tiny.en", "base"])
def test_jfk_gives_the_same_tokens_and_times(
    model: str, flash_attn: bool, peer: Worker, ours: Worker, tmp_path: Path
) -> None:
    text = assert_same(peer, ours, model, data.jfk_wav(), flash_attn, tmp_path)
    assert "ask not what your country can do for you" in text.lower()


@FLASH
def test_lecture_gives_the_same_tokens_and_times(
    flash_attn: bool, peer: Worker, ours: Worker, tmp_path: Path
) -> None:
    assert_same(peer, ours, "base", data.lecture_wav(), flash_attn, tmp_path)


@FLASH
@pytest.mark.parametrize("clip", range(N_CLIPS))
def test_librivox_clip_gives_the_same_tokens_and_times(
    clip: int, flash_attn: bool, peer: Worker, ours: Worker, tmp_path: Path
) -> None:
    wav, _ = data.librivox_clips()[clip]
    assert_same(peer, ours, "base", wav, flash_attn, tmp_path)


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation; an apostrophe belongs to its word."""
    return re.findall(r"[a-z0-9']+", text.lower())


def edits(truth: list[str], heard: list[str]) -> int:
    """Fewest insertions, deletions and replacements that turn one list into the other."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(truth, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def test_edits_counts_by_hand() -> None:
    assert edits("the cat sat on the mat".split(), "the cat sat the big mat".split()) == 2
    assert edits([], ["a", "b"]) == 2
    assert edits(["a"], []) == 1


def test_word_error_rate_on_librivox(ours: Worker, tmp_path: Path) -> None:
    wrong = total = 0
    clips = data.librivox_clips()
    assert len(clips) == N_CLIPS
    for wav, transcript in clips:
        heard = text_of(transcribe(ours, data.model_file("base"), as_array(wav, tmp_path), True))
        truth = words_of(transcript)
        n = edits(truth, words_of(heard))
        print(f"{Path(wav).name}: {n} of {len(truth)} words wrong: {heard.strip()}")
        wrong, total = wrong + n, total + len(truth)
    print(f"word error rate of base on {len(clips)} LibriVox clips: {wrong / total:.1%}")
    assert wrong / total <= WORST_WORD_ERROR_RATE
