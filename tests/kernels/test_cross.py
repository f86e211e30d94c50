"""Cross keys and values, how they are stored and attended to, in a decoder of one block."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.decoding import Decoder
from tests.kernels.sets import BF16, F32, I8, Library, each_library
from tests.kernels.test_decoder import conversations

# What cross keys and values are kept as; Q8 is for weights only.
TYPES = pytest.mark.parametrize("kind", [F32, BF16, I8], ids=["f32", "bf16", "i8"])
# A softmax over a few positions, absolute; keys of 8 bits move its scores by some hundredths.
LOOK_BOUND = {F32: 2e-3, BF16: 2e-2, I8: 4e-2}


@each_library
@TYPES
@pytest.mark.parametrize("n_ctx", [1, 2, 15, 63, 64, 65, 127, 1499, 1500])
def test_every_number_of_positions(library: Library, kind: int, n_ctx: int) -> None:
    decoder = Decoder(64, 1, 1, cross=kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, n_ctx, [7])  # more than a tile of queries
    for look_to in {1, n_ctx // 2 + 1, n_ctx}:
        _, looks = decoder.run(rows, {}, look_to)
        _, look = packed.run(rows, packed.cache(7), watched=[(0, 0)], look_to=look_to)
        assert np.abs(look[0] - looks[0, 0]).max() < LOOK_BOUND[kind]
        assert np.abs(look.sum(axis=-1) - 1).max() < 1e-5  # float32 over as many as 1500


@each_library
def test_positions_after_the_end_are_not_looked_at(library: Library) -> None:
    decoder = Decoder(64, 1, 1)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 10, [1])
    _, look = packed.run(rows, packed.cache(1), watched=[(0, 0)], look_to=25)
    assert (look[0, 0, 10:] == 0).all()
    assert abs(look[0, 0, :10].sum() - 1) < 1e-6  # float32


@each_library
@TYPES
@pytest.mark.parametrize(("n_state", "n_head"), [(8, 1), (24, 1), (40, 5), (80, 1), (96, 2), (320, 2), (512, 1)])
def test_every_size_of_head(library: Library, kind: int, n_state: int, n_head: int) -> None:
    decoder = Decoder(n_state, n_head, 1, cross=kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 70, [3])
    watched = [(0, head) for head in range(n_head)]
    _, looks = decoder.run(rows, {}, 70)
    _, look = packed.run(rows, packed.cache(3), watched=watched, look_to=70)
    assert np.abs(look - looks[0]).max() < LOOK_BOUND[kind]


@each_library
@TYPES
def test_threads_store_the_same(library: Library, kind: int) -> None:
    decoder = Decoder(128, 2, 2, weights=kind, cross=kind)
    packed = decoder.packed(library)
    hidden = np.random.default_rng(3).standard_normal((200, 128)).astype(np.float32)
    one = packed.window(hidden)
    for nth in 2, 3, 5:
        assert (packed.window(hidden, nth) == one).all()


@each_library
@TYPES
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("position", [0, 69])
def test_a_window_with_what_is_no_number(library: Library, kind: int, bad: float, position: int) -> None:
    decoder = Decoder(64, 1, 1, weights=F32, cross=kind)
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 70, [2, 2])
    good, _ = packed.run(rows, packed.cache(4))
    hidden = np.zeros((70, 64), np.float32)
    hidden[position, 5] = bad
    broken = packed.window(hidden)
    logits, _ = packed.run([{**row, "cross": broken} if i < 2 else row for i, row in enumerate(rows)], packed.cache(4))
    assert not np.isfinite(logits[:2]).any()
    assert (logits[2:] == good[2:]).all()


@each_library
@pytest.mark.parametrize("kind", [BF16, I8], ids=["bf16", "i8"])
def test_one_strong_key_takes_all(library: Library, kind: int) -> None:
    """Weights of 0 and 1 are exact in every type, so the answer is the strong position's values as they are stored."""
    decoder = Decoder(64, 1, 1, cross=kind)
    decoder.layers[0]["cross_q"][0][:] *= 200
    packed = decoder.packed(library)
    rows, _ = conversations(decoder, packed, 300, [2])
    _, looks = decoder.run(rows, {}, 300)
    _, look = packed.run(rows, packed.cache(2), watched=[(0, 0)], look_to=300)
    assert (looks[0, 0].max(axis=-1) > 0.999).all()
    assert (look[0].argmax(axis=-1) == looks[0, 0].argmax(axis=-1)).all()
    assert (look[0].max(axis=-1) > 0.99).all()
