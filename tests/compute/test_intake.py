"""Weights are read and packed in pieces, by several threads: whatever the cut, a model is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.tiny import pair, recipe_of
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core import kernels as core
from whispyx._core.context import Context
from whispyx._core.state import State
from whispyx.plugins import load

SOUND = speechlike(3.0, seed=5)
RECIPES = {
    "f16": recipe_of("f16"),
    "quantised": recipe_of("q5_1", n_state=128),
    "sizes that are no multiples": TinyModel(n_state=72, n_head=3, n_vocab=51865),
}


@pytest.fixture(autouse=True)
def _kernels() -> None:
    load()
    if core.name() is None:
        pytest.skip("no kernels for this machine")


def results(source: Any, compute: str, **keywords: Any) -> tuple[np.ndarray, np.ndarray]:
    with Context.load(source, compute=compute, **keywords) as ctx, State(ctx) as state:
        state.pcm_to_mel(SOUND, n_threads=1)
        state.encode(0, n_threads=1)
        state.decode([50258, 50300, 17], n_past=0, n_threads=1, all_logits=True)
        return np.array(state.tensor("encoder")), np.array(state.logits())


@pytest.mark.parametrize("compute", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_threads_and_sources_do_not_change_a_model(
    recipe: TinyModel, compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pair(recipe).path
    monkeypatch.setattr("whispyx._core.intake.usable_cores", lambda: 1)
    alone = results(str(path), compute)
    monkeypatch.setattr("whispyx._core.intake.usable_cores", lambda: 4)
    for source in (str(path), path.read_bytes()):
        for found, expected in zip(results(source, compute), alone, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_progress_grows_to_the_size_of_the_file() -> None:
    path = pair(RECIPES["f16"]).path
    told: list[tuple[int, int]] = []
    with Context.load(str(path), compute="bf16", progress=lambda *what: told.append(what)):
        pass
    size = path.stat().st_size
    assert {total for _, total in told} == {size}
    done = [part for part, _ in told]
    assert done == sorted(done)
    assert done[-1] == size


def test_what_progress_raises_ends_the_reading() -> None:
    def stop(*_: int) -> None:
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        Context.load(str(pair(RECIPES["f16"]).path), compute="bf16", progress=stop)
