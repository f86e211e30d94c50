"""The oracle itself against whisper.cpp: who checks the core must have been checked.

Known differences, where whisper.cpp is wrong and the oracle is not, are left out by name (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.core.test_oracle_transcribe import TRIALS, truth_of
from tests.core.tiny import pair, recipe_of
from tests.oracle import mel as oracle_mel
from tests.oracle.compare import assert_close, nmse_tolerance
from tests.oracle.greedy import Transcriber
from tests.oracle.network import SelfCache, Whisper
from tests.oracle.rules import Settings
from tests.oracle.tiny_model import speechlike
from tools.workers.client import Worker, whispercpp

NOT_COMPARED = {
    "f32": "whisper.cpp stops at an assertion in its convolution",
    "English, windows that fail": "whisper.cpp shows the tokens of a failed window uncut",
    "English, a window that fails": "whisper.cpp shows the tokens of a failed window uncut",
    "100 languages, a window that fails": "whisper.cpp shows the tokens of a failed window uncut",
}
WEIGHT_TYPES = ("f16", "bf16", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
PADDED_ROWS = 256  # with flash attention whisper.cpp attends to rows of zeros up to a multiple of this


@pytest.fixture(scope="module")
def peer(whispercpp_python: Path) -> Iterator[Worker]:
    with whispercpp(whispercpp_python) as worker:
        yield worker


@pytest.mark.parametrize("flash_attn", [False, True], ids=["plain", "flash"])
@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_logits_equal_whispercpp(weight_type: str, flash_attn: bool, peer: Worker, tmp_path: Path) -> None:
    both = pair(recipe_of(weight_type))
    net = Whisper(both.model, zero_rows_to=PADDED_ROWS if flash_attn else 0)
    samples = speechlike(7.0, seed=3)
    np.save(tmp_path / "sound.npy", samples)
    batches = [[50257, 1000, 2000], [7], [50363], [40000, 11]]
    peer("load", model=str(both.path), flash_attn=flash_attn)
    out = tmp_path / "logits.npy"
    peer("logits", samples=str(tmp_path / "sound.npy"), seek=150, batches=batches, n_threads=1, out=str(out))
    encoded = net.encode(oracle_mel.window_of(oracle_mel.log_mel(samples, both.model.filters), 150, 100))
    cache = SelfCache()
    truth = np.stack([net.decode(batch, encoded, cache)[-1] for batch in batches])
    assert_close(f"{weight_type} logits", np.load(out), truth, nmse_tolerance(weight_type))


@pytest.mark.parametrize("name", [name for name in TRIALS if name not in NOT_COMPARED])
def test_transcription_equals_whispercpp(name: str, peer: Worker, tmp_path: Path) -> None:
    trial = TRIALS[name]
    both, samples, settings = pair(trial.recipe), speechlike(trial.seconds, trial.seed), Settings(**trial.settings)
    np.save(tmp_path / "sound.npy", samples)
    truth = truth_of(name)
    fields = {key: value for key, value in asdict(settings).items() if value not in ("", ())}
    peer("load", model=str(both.path), flash_attn=False)
    answer = peer(
        "full", samples=str(tmp_path / "sound.npy"), params={"temperature_inc": 0.0, "n_threads": 1, **fields}
    )
    assert answer["code"] == 0
    theirs = [(s["t0"], s["t1"], bytes.fromhex(s["text_hex"]), s["tokens"]) for s in answer["segments"]]
    # whisper.cpp lets text without a closing timestamp end 30 s after the window's start, and any text at a timestamp
    # past the end of the sound; without timestamps it takes the first token of the vocabulary for 0.00 s
    beg = Transcriber(both.net).sp.beg
    end = oracle_mel.n_frames_of_sound(len(samples))
    if settings.duration_ms:
        end = (settings.offset_ms + settings.duration_ms) // 10
    last = max(oracle_mel.n_frames_of_sound(len(samples)), (len(samples) + 159) // 160)
    mended = [
        (min(t0 if t0 >= 0 else t0 + 2 * beg, last), min(t1, last if ids[-1] > beg else end), text, ids)
        for t0, t1, text, ids in theirs
    ]
    assert [(s.t0, s.t1, s.text, s.tokens) for s in truth.segments] == mended
