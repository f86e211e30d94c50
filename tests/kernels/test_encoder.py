"""The encoder of the kernels, all stages, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.encoding import Encoder, Packed
from tests.kernels.sets import BF16, F32, G8, I8, Library, each_library

# Of matrices, of the scores of attention, and of single kinds of matrices.
MIXES: dict[str, dict[str, int]] = {
    "f32": {"kind": F32, "scores": F32},
    "f32, scores i8": {"kind": F32, "scores": I8},
    "bf16": {"kind": BF16, "scores": BF16},
    "bf16, scores i8": {"kind": BF16, "scores": I8},
    "bf16, perceptron g8": {"kind": BF16, "scores": I8, "up": G8, "down": G8},
    "g8, projection bf16": {"kind": BF16, "scores": I8, "qkv": G8, "up": G8, "down": G8},
    "g8": {"kind": G8, "scores": I8},
    "i8": {"kind": I8, "scores": I8},
}

# Root mean square of the error over that of the hidden states (which the last norm makes about 1).
# f32: sums of up to 4 n_state products, one after another, in four products per block.
# bf16: 8 bits of every activation, weight of a softmax and context: 2^-9 each, some of it averaged away.
# scores i8: 7 bits of every query and key beside the largest of its row; scores of some units move by hundredths
# (beside f32 matrices they are f32 as well).
# i8: 7 bits of every activation and weight beside the row's largest, which is 3 to 4 times the usual one.
# g8: the same beside the largest weight of 64.
ERROR = {
    "f32": 4e-6,
    "f32, scores i8": 4e-6,
    "bf16": 1e-2,
    "bf16, scores i8": 1.5e-2,
    "bf16, perceptron g8": 2e-2,
    "g8, projection bf16": 3e-2,
    "g8": 3e-2,
    "i8": 5e-2,
}

# n_state, heads, layers, mel bands, positions. Heads of 64 and of 8, 9, 16, 24, 65, 80; one position; whole and broken
# tiles, panels, chunks; as many as a window has.
SIZES = [
    (64, 1, 1, 80, 1),
    (64, 1, 2, 80, 2),
    (128, 2, 2, 80, 64),
    (128, 2, 2, 128, 97),
    (192, 3, 1, 80, 257),
    (48, 6, 2, 80, 33),
    (96, 6, 2, 80, 101),
    (72, 3, 2, 80, 193),
    (160, 2, 1, 80, 150),
    (130, 2, 1, 80, 65),
    (81, 9, 1, 5, 47),
    (64, 1, 0, 80, 7),
    (64, 1, 1, 80, 1500),
]


def error_of(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()))


@each_library
@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "-".join(map(str, s)))
def test_hidden_states_are_those_of_float64(library: Library, kind: str, size: tuple[int, ...]) -> None:
    *sizes, n_mels, n_ctx = size
    encoder = Encoder(*sizes, n_mels=n_mels)
    mel = encoder.mel(n_ctx)
    found = Packed(encoder, library, **MIXES[kind]).run(mel)
    error = error_of(found, encoder.run(mel))
    print(f"{library} {kind} {size}: {error:.2e}")
    assert error < ERROR[kind]


@each_library
@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("size", [(128, 2, 2, 331), (96, 4, 1, 199)], ids=lambda s: "-".join(map(str, s)))
def test_hidden_states_do_not_depend_on_the_number_of_threads(library: Library, kind: str, size) -> None:
    *sizes, n_ctx = size
    encoder = Encoder(*sizes)
    packed, mel = Packed(encoder, library, **MIXES[kind]), encoder.mel(n_ctx)
    alone = packed.run(mel)
    for n_threads in 2, 3, 7, 16:
        np.testing.assert_array_equal(packed.run(mel, n_threads), alone)


@each_library
@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_passed_on(library: Library, kind: str, value: float) -> None:
    encoder = Encoder(128, 2, 1)
    mel = encoder.mel(100)
    mel[3, 50] = value
    found = Packed(encoder, library, **MIXES[kind]).run(mel, 2)
    assert not np.isfinite(found).all()
