"""What the tests of the OpenVINO encoder share: a small model, the truth about it, one window through a session."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.core.tiny import pair, recipe_of
from tests.oracle.network import Whisper
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx.encoders import OpenVinoEncoder

RECIPE = recipe_of("f32", seed=5)
SIZES = (RECIPE.n_mels, RECIPE.n_audio_ctx, RECIPE.n_state)
SOUND = speechlike(8, 5)

# Normalised mean square errors. OpenVINO in f32 has float32's own roundings. A weight that is stored in fewer bits is
# off by some 2^-13 (f16) or 2^-10 (bf16) of itself, and computing in bf16 rounds every activation, too.
EXACT, F16, BF16 = 1e-9, 3e-6, 5e-4


def oracle(recipe: TinyModel = RECIPE) -> Whisper:
    """The network with the exact GELU, in float64."""
    return Whisper(pair(recipe).model, gelu="erf")


def mel(seed: int = 1, n_ctx: int = RECIPE.n_audio_ctx, n_mels: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, (n_mels, 2 * n_ctx)).astype(np.float32)


def never() -> bool:
    return False


def run(encoder: OpenVinoEncoder, window: np.ndarray, sizes: tuple[int, int, int] = SIZES, n_threads: int = 1) -> Any:
    session = encoder.whispyx_session(*sizes)
    try:
        return session.run(window, n_threads, never)
    finally:
        session.close()
