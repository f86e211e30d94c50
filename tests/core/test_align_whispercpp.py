"""Token times on real speech against whisper.cpp 1.8.5, both ways of making them.

Its tokens and what it says about them are taken as they are, so that nothing but the times is compared.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import whispyx.plugins
from tests import data
from tests.oracle.align import Guess, Timed
from tools.workers.client import Worker, whispercpp
from whispyx._core.align.align import align
from whispyx._core.align.energy import TokenClock
from whispyx._core.align.heads import resolve
from whispyx._core.context import Context
from whispyx._core.results import SegmentData, TokenData

SOUNDS = {"jfk": data.jfk_wav, "lecture": data.lecture_wav, "clip": lambda: data.librivox_clips()[0].wav}
CASES = pytest.mark.parametrize(("model", "sound"), [("base", "jfk"), ("base", "lecture"), ("tiny.en", "clip")])


@pytest.fixture(scope="module")
def peer(whispercpp_python: Path) -> Iterator[Worker]:
    with whispercpp(whispercpp_python) as worker:
        yield worker


@functools.cache
def context(name: str) -> Any:
    whispyx.plugins.load()
    ctx = Context.load(str(data.or_skip(data.model_file, name)), flash_attn=False)
    ctx.set_aheads(resolve(name, -1, None, ctx.hparams))
    return ctx


_answers: dict[tuple[str, str], tuple[Any, list[Any]]] = {}


def answer(peer: Worker, model: str, sound: str, folder: Path) -> tuple[Any, list[Any]]:
    """Samples, and the segments that whisper.cpp makes of them, with both kinds of times."""
    if (model, sound) not in _answers:
        samples, rate = soundfile.read(data.or_skip(SOUNDS[sound]), dtype="float32")
        assert rate == 16000
        np.save(folder / "sound.npy", samples)
        peer("load", model=str(data.or_skip(data.model_file, model)), flash_attn=False, aheads={"preset": model})
        params = {"token_timestamps": True, "temperature_inc": 0.0, "n_threads": 2, "language": "en"}
        found = peer("full", samples=str(folder / "sound.npy"), params=params)["segments"]
        _answers[model, sound] = samples, found
    return _answers[model, sound]


def rebuilt(segments: list[Any], vocab: Any) -> list[SegmentData]:
    out = []
    for s in segments:
        tokens = [
            TokenData(id=id_, tid=tid, p=p, pt=pt, ptsum=ptsum, text=vocab.token_bytes(id_))
            for id_, tid, p, pt, ptsum in zip(s["tokens"], s["tid"], s["p"], s["pt"], s["ptsum"], strict=True)
        ]
        out.append(SegmentData(t0=s["t0"], t1=s["t1"], text=bytes.fromhex(s["text_hex"]), tokens=tokens))
    return out


@CASES
def test_the_guess_from_loudness_equals_whisper_cpp(model: str, sound: str, peer: Worker, tmp_path: Path) -> None:
    """Where it looks at the right sound (B20). Its other times are those of the rules with that defect."""
    samples, theirs = answer(peer, model, sound, tmp_path)
    vocab = context(model).vocab
    clock = TokenClock(samples, 0.01, 0.01, vocab)
    defective = Guess(samples, vocab.beg, vocab.eot, relative=True)
    n_moved = n_tokens = 0
    for s, ours in zip(theirs, rebuilt(theirs, vocab), strict=True):
        clock.fill(ours)
        plain = [Timed(t.id, t.tid, t.pt, t.ptsum, t.text.decode("utf-8", "replace")) for t in ours.tokens]
        defective.fill(s["t0"], s["t1"], plain)
        times = np.array([s["token_t0"], s["token_t1"]]).T
        assert np.abs(times - [(t.t0, t.t1) for t in plain]).max() <= 1
        moved = np.abs(times - [(t.t0, t.t1) for t in ours.tokens]).max(axis=1) > 1
        assert s["t0"] > 0 or not moved.any()
        n_moved, n_tokens = n_moved + int(moved.sum()), n_tokens + len(moved)
    print(f"{model}, {sound}: the defect moves {n_moved} of {n_tokens} tokens")


@CASES
def test_marks_by_attention_equal_whisper_cpp(model: str, sound: str, peer: Worker, tmp_path: Path) -> None:
    """Both without flash attention, with which it aligns nothing. With it, rounding moves a few tokens here."""
    samples, theirs = answer(peer, model, sound, tmp_path)
    ctx = context(model)
    n_tokens = n_off = 0
    with ctx.new_state() as state:
        state.pcm_to_mel(samples, 2)
        for first, last in windows(theirs, ctx.vocab.beg):
            window = theirs[first:last]
            seek = window[0]["t0"] - 2 * (window[0]["tokens"][0] - ctx.vocab.beg)
            closed = window[-1]["tokens"][-1] >= ctx.vocab.beg
            end = window[-1]["t1"] if closed else seek + 3000
            ours = rebuilt(window, ctx.vocab)
            state.encode(seek, 2)
            align(state, ours, seek, min(end, state.n_len, seek + 3000) - seek, 0, 2)
            for s, segment in zip(window, ours, strict=True):
                off = [abs(a - t.t_dtw) > 1 for a, t in zip(s["t_dtw"], segment.tokens, strict=True)]
                n_off, n_tokens = n_off + sum(off), n_tokens + len(off)
    print(f"{model}, {sound}: {n_off} of {n_tokens} tokens differ by more than 10 ms")
    # Where two paths cost all but the same, rounding decides: 2 of 248 tokens with tiny.en, none of 259 with base.
    assert n_off <= 1 + n_tokens // 50


def windows(segments: list[Any], beg: int) -> Iterator[tuple[int, int]]:
    """First and end of the segments of each window: only a window's first segment opens with a timestamp."""
    firsts = [i for i, s in enumerate(segments) if s["tokens"][0] >= beg]
    assert firsts[0] == 0
    yield from zip(firsts, [*firsts[1:], len(segments)], strict=True)
