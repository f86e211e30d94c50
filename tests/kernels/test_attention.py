"""The attention of the encoder, where a softmax is hard: through an encoder of one layer, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.encoding import Encoder, Packed
from tests.kernels.sets import BF16, F32, I8, Library, each_library

# Largest error over the largest hidden state. Scores of up to 150 in f32 are exact to 1e-5, and so are their weights;
# in bf16, rounding the queries and keys of such scores moves them by some tenths.
F32_ERROR = 2e-4
BF16_ERROR = 3e-2
# 8-bit queries, keys, weights and values: a query that is one large number moves such scores by tenths, too.
I8_ERROR = 6e-2

KINDS = {
    "f32": ({"kind": F32, "scores": F32}, F32_ERROR),
    "bf16": ({"kind": BF16, "scores": BF16}, BF16_ERROR),
    "i8": ({"kind": BF16, "scores": I8}, I8_ERROR),
}


def silent(encoder: Encoder) -> Encoder:
    """Take the perceptrons out: what is left after the convolutions is attention."""
    for layer in encoder.layers:
        layer["down"][0][:] = 0
        layer["down"][1][:] = 0
    return encoder


def error_of(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@each_library
@pytest.mark.parametrize("n_ctx", [5, 63, 64, 65, 255, 256, 257, 300, 600])
@pytest.mark.parametrize("d", [8, 64, 80])
def test_sharp_attention_in_f32(library: Library, n_ctx: int, d: int) -> None:
    encoder = silent(Encoder(2 * d, 2, 1, sharpness=30.0))
    mel = encoder.mel(n_ctx)
    assert error_of(Packed(encoder, library, **KINDS["f32"][0]).run(mel), encoder.run(mel)) < F32_ERROR


@each_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rising", [True, False])
def test_scores_that_rise_or_fall_over_the_window(library: Library, kind: str, rising: bool) -> None:
    """The reference of a softmax moves many times, or never: keys grow along the window by 60 in the exponent."""
    encoder = silent(Encoder(64, 1, 1, sharpness=1.0))
    w, b = encoder.layers[0]["qkv"]
    norm_w, norm_b = encoder.layers[0]["attn_ln"]
    # Channel 0 carries the position, and is all that keys have of it; queries ask for it with a constant.
    n_ctx = 700
    ramp = np.linspace(-1.0, 1.0, 1500)
    ramp[:n_ctx] = np.linspace(-1.0, 1.0, n_ctx) * (1 if rising else -1)
    encoder.positions[:, 0] = 6 * ramp
    w[0], w[64] = 0, 0
    b[0], w[64, 0] = 12.0, 1.0
    norm_w[0], norm_b[0] = 1.0, 0.0
    mel = encoder.mel(n_ctx)
    error = error_of(Packed(encoder, library, **KINDS[kind][0]).run(mel), encoder.run(mel))
    assert error < KINDS[kind][1], error


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_equal_scores_give_the_mean_of_exactly_the_window(library: Library, kind: str) -> None:
    """Queries of zero: what pads the last panel of keys takes no part."""
    encoder = silent(Encoder(64, 1, 1))
    w, b = encoder.layers[0]["qkv"]
    w[:64], b[:64] = 0, 0
    packed = Packed(encoder, library, **KINDS[kind][0])
    for n_ctx in 1, 2, 65, 130:
        mel = encoder.mel(n_ctx)
        assert error_of(packed.run(mel), encoder.run(mel)) < KINDS[kind][1]


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_very_low_scores_are_not_lost_beside_the_padding(library: Library, kind: str) -> None:
    """All scores far below 0, the score of a key of zeros."""
    encoder = silent(Encoder(64, 1, 1))
    w, b = encoder.layers[0]["qkv"]
    w[:128], b[:128] = 0, 0
    b[:64], b[64:128] = 8.0, -2.0  # every score is -1024
    packed = Packed(encoder, library, **KINDS[kind][0])
    for n_ctx in 1, 100, 257:
        mel = encoder.mel(n_ctx)
        assert error_of(packed.run(mel), encoder.run(mel)) < KINDS[kind][1]


@each_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-20, 1e-37, 1e-44])
@pytest.mark.parametrize("part", [0, 64, 128], ids=["queries", "keys", "values"])
def test_numbers_that_are_nearly_nothing(library: Library, kind: str, size: float, part: int) -> None:
    """The smallest ones that float32 has: no scale made of them may become 0 or infinite."""
    encoder = silent(Encoder(64, 1, 1))
    w, b = encoder.layers[0]["qkv"]
    w[part : part + 64], b[part : part + 64] = 0, size
    packed = Packed(encoder, library, **KINDS[kind][0])
    mel = encoder.mel(70)
    assert error_of(packed.run(mel), encoder.run(mel)) < KINDS[kind][1]


@each_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00080, 0xFFC00155])
@pytest.mark.parametrize("part", [0, 64, 128], ids=["queries", "keys", "values"])
def test_a_nan_of_any_bits_stays_one(library: Library, kind: str, bits: int, part: int) -> None:
    """A NaN has 23 bits that mean nothing; a file may hold any."""
    encoder = silent(Encoder(64, 1, 1))
    encoder.layers[0]["qkv"][1].view(np.uint32)[part + 3] = bits
    found = Packed(encoder, library, **KINDS[kind][0]).run(encoder.mel(70))
    assert np.isnan(found).all()
