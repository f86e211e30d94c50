"""The recogniser on our own kernels against the oracle, for random models, precisions and instruction sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.core.tiny import SHAPES, pair, recipe_of
from tests.oracle import mel as oracle_mel
from tests.oracle.network import SelfCache
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core import kernels as core
from whispyx._core.context import Context
from whispyx._core.state import State
from whispyx.plugins import kernels, load

SOUND = speechlike(7.0, seed=3)
USABLE = [record.name for record in kernels.records() if record.score]

# Largest share of noise (squared error over squared signal) that a precision may add. f32 differs by the order of sums
# (and by f16 in the self cache), bf16 keeps 8 significant bits (the decoder's weights 8 of the largest of 32), int8
# rounds the encoder's weights and activations to 1/127 of a row's largest; random weights have no outliers to hide
# behind, so these are near what the formats themselves cost. "mixed" has most of the encoder in 8 bits with a scale per
# 64 numbers (G8), which costs more than bf16 and less than a scale per row.
NOISE = {"f32": 1e-6, "bf16": 8e-4, "mixed": 2.5e-3, "int8": 4e-3}

# The same of the logits of rare tokens, which are those behind FREQUENT: 4 bits cost 1 / 12 of a step (an eighth of the
# largest of 32 numbers) squared. Random rows have nothing in common that could be taken off before.
RARE_NOISE = {"f32": 1e-6, "bf16": 8e-4, "mixed": 1e-2, "int8": 1.2e-2}
FREQUENT = 4096


@pytest.fixture(params=USABLE or [pytest.param("none", marks=pytest.mark.skip("no kernels for this machine"))])
def instruction_set(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each library of kernels that this machine can use, in turn."""
    monkeypatch.setenv(kernels.KERNELS_VARIABLE, request.param)
    assert kernels.load() == request.param
    yield request.param
    monkeypatch.undo()
    kernels.load()


@pytest.fixture(autouse=True)
def _plugins() -> None:
    load()


def noise(found: Any, truth: Any) -> float:
    found, truth = np.asarray(found, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    assert found.shape == truth.shape
    assert np.isfinite(found).all()
    share = float(((found - truth) ** 2).sum() / (truth**2).sum())
    print(f"noise {share:.1e}")
    return share


def check_logits(found: Any, truth: Any, compute: str) -> None:
    """Tokens that are frequent or special, and rare ones."""
    found, truth = np.asarray(found), np.asarray(truth)
    eot = truth.shape[-1] - 1608
    often = np.r_[0:FREQUENT, eot : truth.shape[-1]]
    assert noise(found[..., often], truth[..., often]) < NOISE[compute]
    assert noise(found[..., FREQUENT:eot], truth[..., FREQUENT:eot]) < RARE_NOISE[compute]


def check(recipe: TinyModel, compute: str, n_threads: int = 2) -> None:
    both = pair(recipe)
    bound = NOISE[compute]
    recipe_ctx = both.net.s["n_audio_ctx"]
    mel = oracle_mel.log_mel(SOUND, both.model.filters)
    truth = both.net.encode(oracle_mel.window_of(mel, 0, recipe_ctx))
    with Context.load(str(both.path), compute=compute) as ctx, State(ctx) as state:
        assert ctx.compute == compute
        assert ctx.kernels == core.name()
        state.pcm_to_mel(SOUND, n_threads=n_threads)
        state.encode(0, n_threads=n_threads)
        assert noise(state.tensor("encoder"), truth.output) < bound
        cache = SelfCache()
        prompt = [both.net.s["n_vocab"] - 1607, 50300, 17, 4000, 22222]
        expected = both.net.decode(prompt, truth, cache)
        state.decode(prompt, n_past=0, n_threads=n_threads, all_logits=True)
        check_logits(state.logits(), expected, compute)
        after_prompt = cache.copy()
        for step, token in enumerate([123, 50000, 9]):
            expected = both.net.decode([token], truth, cache)
            state.decode([token], n_past=len(prompt) + step, n_threads=n_threads)
            check_logits(state.logits(), expected, compute)
        expected = both.net.decode([777, 778], truth, after_prompt)
        state.decode([777, 778], n_past=len(prompt), n_threads=n_threads)
        check_logits(state.logits(), expected[-1:], compute)


@pytest.mark.parametrize("compute", NOISE)
def test_every_precision_of_every_instruction_set_equals_the_oracle(instruction_set: str, compute: str) -> None:
    check(recipe_of("f16"), compute)


@pytest.mark.parametrize("compute", NOISE)
@pytest.mark.parametrize("shape", SHAPES)
def test_models_of_every_shape_equal_the_oracle(shape: str, compute: str) -> None:
    if not USABLE:
        pytest.skip("no kernels for this machine")
    check(SHAPES[shape], compute)


@pytest.mark.parametrize("weight_type", ["f32", "bf16", "q8_0", "q5_1", "q4_0", "q6_k"])
def test_weights_of_every_kind_can_be_packed(weight_type: str) -> None:
    if not USABLE:
        pytest.skip("no kernels for this machine")
    for compute in ("bf16", "mixed"):
        check(recipe_of(weight_type), compute)


@pytest.mark.parametrize("n_threads", [1, 3, 5])
def test_results_do_not_depend_on_the_number_of_threads(n_threads: int) -> None:
    if not USABLE:
        pytest.skip("no kernels for this machine")
    found = []
    with Context.load(str(pair(recipe_of("f16")).path), compute="int8") as ctx:
        for n in (2, n_threads):
            with State(ctx) as state:
                state.pcm_to_mel(SOUND)
                state.encode(0, n_threads=n)
                state.decode([1, 2, 3, 4], n_threads=n, all_logits=True)
                found.append((state.tensor("encoder"), state.logits()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
