"""The decoder of the compute kernels against float64, and against itself: alone, in batches, on several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.decoding import Decoder, rounded
from tests.kernels.sets import BF16, F32, I8, N4, Q8, Library, each_library

# Root mean square of the error over that of the logits. Weights are exact in f32 and bf16, so what remains is: self
# attention over f16 caches (2^-11 of a value), and activations of 8 bits' precision. Q8 has 16 bits there, but its
# weights are whole numbers of 8 bits with many scales, as the cross keys beside it are.
BOUND = {F32: 1e-3, BF16: 1e-2, Q8: 2e-2}
CROSS_BOUND = {F32: 1e-3, BF16: 1e-2, I8: 2e-2}
# A softmax over a few positions, absolute; keys of 8 bits move its scores by some hundredths.
LOOK_BOUND = {F32: 2e-3, BF16: 2e-2, Q8: 4e-2}
TYPES = pytest.mark.parametrize("kind", [F32, BF16, Q8], ids=["f32", "bf16", "q8"])

# Numbers of a head from 8 to 80 (64 is Whisper's), windows from one position to all.
SIZES = [(128, 2, 130), (16, 2, 63), (72, 3, 65), (160, 2, 64), (80, 1, 1), (128, 2, 1500)]


def error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2)))


def conversations(
    decoder: Decoder, packed: Any, n_ctx: int, lengths: list[int], seed: int = 1
) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """One window for each length, and as many rows, whose cells lie apart and in no order."""
    rng = np.random.default_rng(seed)
    rows, kept = [], []
    free = rng.permutation(sum(lengths))
    for length in lengths:
        hidden = rng.standard_normal((n_ctx, decoder.n_state)).astype(np.float32)
        window, cross = decoder.window(hidden), packed.window(hidden)
        kept.append(cross)
        cells, free = free[:length], free[length:]
        for pos in range(length):
            rows.append(
                {
                    "token": int(rng.integers(decoder.n_vocab)),
                    "pos": pos,
                    "slot": int(cells[pos]),
                    "cells": [int(c) for c in rng.permutation(cells[: pos + 1])],
                    "window": window,
                    "cross": cross,
                    "n_ctx": n_ctx,
                    "output": len(rows),
                }
            )
    return rows, kept


@each_library
@TYPES
@pytest.mark.parametrize(("n_state", "n_head", "n_ctx"), SIZES)
def test_logits_and_heads_equal_float64(library: Library, kind: int, n_state: int, n_head: int, n_ctx: int) -> None:
    decoder = Decoder(n_state, n_head, 2, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, n_ctx, [9, 3])
    watched = [(0, n_head - 1), (1, 0)]
    look_to = min(n_ctx, 50)
    expected, looks = decoder.run(rows, {}, look_to)
    logits, look = packed.run(rows, packed.cache(12), watched=watched, look_to=look_to)
    assert error(logits, expected) < BOUND[kind]
    for i, (layer, head) in enumerate(watched):
        assert np.abs(look[i] - looks[layer, head]).max() < LOOK_BOUND[kind]
    if kind == F32 and n_ctx > 1:
        assert looks.max() > 2 / look_to  # the heads do prefer some positions


@each_library
@pytest.mark.parametrize("weights", [F32, BF16, Q8], ids=["f32", "bf16", "q8"])
@pytest.mark.parametrize("cross", [F32, BF16, I8], ids=["cross f32", "cross bf16", "cross i8"])
def test_cross_keys_may_be_kept_otherwise_than_weights(library: Library, weights: int, cross: int) -> None:
    decoder = Decoder(64, 1, 1, weights=weights, cross=cross)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 100, [4])
    logits, _ = packed.run(rows, packed.cache(4))
    assert error(logits, decoder.run(rows, {})[0]) < max(BOUND[weights], CROSS_BOUND[cross])


@each_library
@TYPES
@pytest.mark.parametrize("nth", [1, 2, 3, 7])
def test_a_row_is_the_same_alone_and_among_others(library: Library, kind: int, nth: int) -> None:
    decoder = Decoder(128, 2, 2, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 130, [7, 1, 2, 5, 6, 3])
    cache = packed.cache(24)
    alone = [packed.run([{**row, "output": 0}], cache, watched=[(0, 1), (1, 0)], look_to=20) for row in rows]
    logits, look = packed.run(rows, packed.cache(24), nth=nth, watched=[(0, 1), (1, 0)], look_to=20)
    assert (logits == np.concatenate([one for one, _ in alone])).all()
    assert (look == np.concatenate([one for _, one in alone], axis=1)).all()


@each_library
@TYPES
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("asked", [1, 20, 150])
def test_a_prompt_is_the_same_as_its_tokens_one_by_one(library: Library, kind: int, nth: int, asked: int) -> None:
    decoder = Decoder(64, 1, 2, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    n = 150  # with one to three threads each takes its rows through the block, or not
    rows, _ = conversations(decoder, packed, 70, [n])
    cache, together = packed.cache(n), packed.cache(n)
    one_by_one = np.concatenate([packed.run([{**row, "output": 0}], cache)[0] for row in rows])
    for row in rows:
        row["output"] = row["pos"] - (n - asked) if row["pos"] >= n - asked else -1
    logits, _ = packed.run(rows, together, nth=nth)
    assert logits.shape == (asked, decoder.n_vocab)
    assert (logits == one_by_one[n - asked :]).all()
    assert (cache[0] == together[0]).all() and (cache[1] == together[1]).all()
    watched, _ = packed.run(rows, packed.cache(n), nth=nth, watched=[(1, 0)], look_to=70)
    assert (watched == logits).all()


# Frequent tokens, rare ones, timestamps and the like: what the recogniser does with the output projection.
RARE = [(I8, 128), (N4, 700), (I8, 72)]


@each_library
@pytest.mark.parametrize("parts", [RARE, [(N4, 900)], [(N4, 70), (Q8, 830)]], ids=["recogniser", "all", "others"])
@pytest.mark.parametrize("n_state", [16, 72, 128])
def test_logits_in_parts_are_near_float64_and_those_that_matter_nearer(
    library: Library, parts: list[tuple[int, int]], n_state: int
) -> None:
    decoder = Decoder(n_state, 1, 2, weights=Q8, cross=I8, n_vocab=900, logits=parts)
    decoder.times = (850, 900)
    # As in a model: all rows of the embedding have much in common, the hidden states, too.
    decoder.d_te += 2 * decoder.d_te[3]
    decoder.d_te = rounded(decoder.d_te, BF16)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 70, [9, 3])
    expected = decoder.run(rows, {})[0]
    logits, _ = packed.run(rows, packed.cache(12))
    level = expected.mean(axis=1, keepdims=True)
    assert error(logits - level, expected - level) < 0.15
    for kind in (slice(0, 850), slice(850, 900)):
        top = expected[:, kind].argmax(axis=1, keepdims=True)
        found, truth = (np.take_along_axis(x[:, kind], top, axis=1) for x in (logits, expected))
        assert error(found - level, truth - level) < BOUND[Q8]


@each_library
@pytest.mark.parametrize("nth", [1, 2, 3, 7])
def test_logits_in_parts_are_the_same_alone_and_among_others(library: Library, nth: int) -> None:
    decoder = Decoder(128, 2, 1, weights=Q8, cross=I8, n_vocab=900, logits=RARE)
    decoder.times = (850, 900)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 70, [7, 1, 2, 12, 6, 3])
    cache = packed.cache(31)
    alone = [packed.run([{**row, "output": 0}], cache)[0] for row in rows]
    logits, _ = packed.run(rows, packed.cache(31), nth=nth)
    assert (logits == np.concatenate(alone)).all()


# Rows of earlier text have activations, queries and weights of 8 bits: what the rows after them see of it, relative.
EARLY_BOUND = {F32: 1e-3, BF16: 1e-2, Q8: 3e-2}


def earlier_first(rows: list[dict[str, Any]], asked: int) -> tuple[list[dict[str, Any]], int]:
    """Rows of each window but its last `asked` as earlier text, in front of all others; and how many they are."""
    longest = {id(row["cross"]): row["pos"] + 1 for row in rows}
    early = [{**row, "output": -1} for row in rows if row["pos"] < longest[id(row["cross"])] - asked]
    late = [row for row in rows if row["pos"] >= longest[id(row["cross"])] - asked]
    return early + [{**row, "output": i} for i, row in enumerate(late)], len(early)


@each_library
@TYPES
@pytest.mark.parametrize(("n_state", "n_head", "n_ctx"), SIZES)
def test_text_after_earlier_text_is_near_float64(
    library: Library, kind: int, n_state: int, n_head: int, n_ctx: int
) -> None:
    decoder = Decoder(n_state, n_head, 2, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, n_ctx, [40, 9])
    expected = decoder.run(rows, {})[0]
    asked, n_early = earlier_first(rows, 3)
    logits, _ = packed.run(asked, packed.cache(49), n_early=n_early)
    assert n_early == 43
    assert logits.shape == (6, decoder.n_vocab)
    assert error(logits, expected[[37, 38, 39, 46, 47, 48]]) < EARLY_BOUND[kind]


@each_library
@TYPES
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_earlier_text_is_the_same_alone_and_among_others(library: Library, kind: int, nth: int) -> None:
    decoder = Decoder(128, 2, 2, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 130, [7, 2, 151, 20])
    cache, together = packed.cache(180), packed.cache(180)
    asked, n_early = earlier_first(rows, 2)
    for row in asked[:n_early]:
        packed.run([row], cache, n_early=1)
    alone = np.concatenate([packed.run([{**row, "output": 0}], cache)[0] for row in asked[n_early:]])
    logits, _ = packed.run(asked, together, nth=nth, n_early=n_early)
    assert (logits == alone).all()
    assert (cache[0] == together[0]).all() and (cache[1] == together[1]).all()


@each_library
@TYPES
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_earlier_text_that_is_no_number_is_none_to_those_who_see_it(library: Library, kind: int, bad: float) -> None:
    decoder = Decoder(64, 1, 2, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 70, [6, 1])
    asked, n_early = earlier_first(rows, 2)
    good, _ = packed.run(asked, packed.cache(7), n_early=n_early)
    decoder.d_pe[1, 3] = bad  # the first window's earlier text; the second one has none
    logits, _ = packed.run(asked, packed.cache(7), n_early=n_early)
    assert n_early == 4
    assert np.isnan(logits[:2]).all()
    assert (logits[2] == good[2]).all()


@each_library
@pytest.mark.parametrize("early", [0, 1], ids=["late", "early"])
@pytest.mark.parametrize(("n_ctx", "position"), [(10, 3), (70, 0), (130, 66)])
def test_one_key_that_is_no_number_is_none_to_whoever_looks_at_it(
    library: Library, early: int, n_ctx: int, position: int
) -> None:
    """In 8 bits, where it has no scale. The value beside it is a number, so nothing but the weight can tell."""
    decoder = Decoder(64, 1, 2, cross=I8)
    weights, _ = decoder.cross_kv
    weights[:, 7] = 0
    weights[5, 7] = 1e30  # the first layer's keys
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, n_ctx, [1])
    hidden = np.random.default_rng(2).standard_normal((n_ctx, 64)).astype(np.float32)
    hidden[:, 7] = 0
    good, broken = packed.window(hidden), hidden.copy()
    broken[position, 7] = 1e30
    for window, finite in (good, True), (packed.window(broken), False):
        keys, _ = cache = packed.cache(1)
        packed.run([{**rows[0], "cross": window, "output": -1}], cache, n_early=early)
        assert np.isfinite(keys[0]).all()  # what the first layer stores comes before its cross attention
        assert np.isfinite(keys[1]).all() == finite
        assert np.isnan(keys[1]).all() != finite


@each_library
def test_the_longest_prompt(library: Library) -> None:
    decoder = Decoder(64, 1, 1, weights=BF16, cross=BF16)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 50, [448])
    logits, _ = packed.run(rows, packed.cache(448), nth=2)
    assert error(logits, decoder.run(rows, {})[0]) < BOUND[BF16]


@each_library
def test_beams_share_cells(library: Library) -> None:
    decoder = Decoder(64, 1, 2)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 64, [6])
    cache, exact = packed.cache(20), {}
    packed.run(rows, cache), decoder.run(rows, exact)
    stem = [row["slot"] for row in rows]
    beams = [
        {**rows[0], "token": token, "pos": 6, "slot": 10 + i, "cells": [*stem[: 6 - i], 10 + i], "output": i}
        for i, token in enumerate([5, 7, 11, 13, 17])
    ]
    logits, _ = packed.run(beams, cache)
    assert error(logits, decoder.run(beams, exact)[0]) < BOUND[F32]


@each_library
@pytest.mark.parametrize("n_vocab", [51864, 51865, 51866])
@TYPES
def test_every_size_of_vocabulary(library: Library, n_vocab: int, kind: int) -> None:
    decoder = Decoder(16, 2, 1, n_vocab=n_vocab, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 3, [2])
    logits, _ = packed.run(rows, packed.cache(2), nth=2)
    assert error(logits, decoder.run(rows, {})[0]) < BOUND[kind]


@each_library
@pytest.mark.parametrize("sign", [1, -1])
def test_times_and_what_lies_behind_them_are_weighed_among_themselves(library: Library, sign: int) -> None:
    """Equal steps between rows of the embedding are equal steps between logits, also where eight bits cannot see them.

    Near ties of a part are computed again exactly, however far below the likeliest text it lies.
    """
    decoder = Decoder(64, 1, 1, n_vocab=142, weights=Q8, cross=I8)
    decoder.times = (100, 121)
    for first in decoder.times:
        decoder.d_te[first : first + 21] = 0
        decoder.d_te[first : first + 21, 0] = 64 * sign
        decoder.d_te[first : first + 21, 1] = 1 + np.arange(21) / 128  # bf16 has all of them, a byte times 64/127 none
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 5, [2, 3])
    logits, _ = packed.run(rows, packed.cache(5), nth=2)
    for first in decoder.times:
        steps = np.diff(logits[:, first : first + 21].astype(np.float64), axis=1)
        assert np.abs(steps).max() > 1e-3
        assert np.ptp(steps, axis=1).max() < 1e-4


@each_library
@TYPES
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_row(library: Library, kind: int, bad: float) -> None:
    decoder = Decoder(64, 1, 1, weights=kind, cross=I8 if kind == Q8 else kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 70, [2, 2])
    good, _ = packed.run(rows, packed.cache(4))
    decoder.d_pe[1, 3] = bad  # the second row of each conversation
    logits, _ = packed.run(rows, packed.cache(4))
    assert not np.isfinite(logits[[1, 3]]).any()
    assert (logits[[0, 2]] == good[[0, 2]]).all()
