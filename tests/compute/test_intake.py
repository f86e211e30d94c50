"""Weights are read and packed in pieces, by several threads: whatever the cut, a model is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.core.tiny import pair, recipe_of
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core import kernels as core
from whispyx._core.context import Context
from whispyx._core.state import State
from whispyx.errors import BackendUnsupportedError, ModelError, ModelFormatError
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


@pytest.mark.parametrize("compute", ["f32", "bf16", "mixed", "int8"])
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


@pytest.mark.parametrize("weight_type", ["f16", "f32"])
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("damaged", [(), (np.nan,), (np.inf, -np.inf, np.nan)], ids=str)
def test_what_all_rows_of_an_embedding_have_in_common_costs_no_digits(
    weight_type: str, mmap: bool, damaged: tuple[float, ...], tmp_path: Path
) -> None:
    """Rare tokens' logits have 4 bits: of what their rows differ by from the mean, or nothing would be left of it.

    Rows that are no numbers, and of which the mean is taken, too, leave all others as they are.
    """
    recipe = TinyModel(weight_type=weight_type, n_state=72, n_head=3, n_vocab=51865)
    whole = recipe.to_bytes()
    kind = np.float16 if weight_type == "f16" else np.float32
    size = recipe.n_vocab * recipe.n_state * np.dtype(kind).itemsize  # the embedding is the last tensor
    embedding = np.frombuffer(whole[-size:], kind).reshape(recipe.n_vocab, recipe.n_state)
    common = np.random.default_rng(3).normal(0, 8 * float(embedding.std(dtype=np.float64)), recipe.n_state)
    path = tmp_path / "model.bin"
    written = (embedding + common).astype(kind)
    for i, value in enumerate(damaged):
        written[4096 + 90 * i] = value  # every ninetieth of the rare rows gives its share to the mean
    path.write_bytes(whole[:-size] + written.tobytes())
    rare = np.delete(np.arange(4096, 50240), [90 * i for i in range(len(damaged))])
    _, truth = results(str(path), "f32")
    _, found = results(str(path), "mixed", mmap=mmap)
    level, heard = (x[:, rare].mean(axis=1, keepdims=True) for x in (truth, found))
    spread = truth[:, rare].std(axis=1).min()
    assert np.abs(level).min() > 3 * spread  # there is something in common
    assert np.abs(heard - level).max() < 0.05 * np.abs(level).max()
    assert np.sqrt((((found[:, rare] - heard) - (truth[:, rare] - level)) ** 2).mean()) < 0.12 * spread


def test_progress_grows_to_the_size_of_the_file() -> None:
    path = pair(RECIPES["f16"]).path
    told: list[tuple[int, int]] = []
    with Context.load(str(path), compute="mixed", progress=lambda *what: told.append(what)):
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
        Context.load(str(pair(RECIPES["f16"]).path), compute="mixed", progress=stop)


@pytest.mark.parametrize("weight_type", ["q5_1", "q8_0", "f32"])
def test_an_embedding_takes_two_bytes_a_number_unless_it_is_to_be_exact(weight_type: str) -> None:
    """Quantised files are small because memory is short: what is kept beside the packed weights must be, too."""
    recipe = recipe_of(weight_type, n_state=128)
    n = recipe.n_vocab * recipe.n_state

    def size(source: Any, compute: str) -> int:
        with Context.load(source, compute=compute) as ctx:
            return ctx.weight_bytes

    half = str(pair(recipe_of("f16", n_state=128)).path)
    source = str(pair(recipe).path)
    for compute in "bf16", "mixed", "int8":
        assert size(source, compute) == size(half, compute)
    assert size(source, "f32") - size(half, "f32") == 2 * n


def test_an_embedding_that_stays_in_its_file_takes_no_memory() -> None:
    recipe = recipe_of("f16", n_state=128)
    with (
        Context.load(str(pair(recipe).path), compute="mixed") as mapped,
        Context.load(str(pair(recipe).path), compute="mixed", mmap=False) as copied,
    ):
        assert mapped.weight_bytes == copied.weight_bytes
        assert (mapped.mapped_bytes, copied.mapped_bytes) == (2 * recipe.n_vocab * recipe.n_state, 0)


@pytest.mark.parametrize("compute", ["mixed", "exact"])
def test_a_file_that_is_written_to_while_it_is_read_is_refused(compute: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(pair(RECIPES["f16"]).path.read_bytes())

    def write(done: int, total: int) -> None:
        with path.open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\0\0\0\0")
        os.utime(path, ns=(1, 1))  # whatever the clock of the file system can tell apart

    with pytest.raises(ModelFormatError, match="was written to"):
        Context.load(str(path), compute=compute, progress=write)
    with Context.load(str(path), compute=compute):
        pass


@pytest.mark.parametrize("compute", ["mixed", "exact"])
def test_a_file_that_becomes_shorter_tells_where(compute: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(pair(recipe_of("f16", n_state=512)).path.read_bytes())

    def cut(done: int, total: int) -> None:
        if path.stat().st_size == total:
            os.truncate(path, total // 8)

    with pytest.raises(ModelFormatError, match=r"became shorter .* at offset \d+"):
        Context.load(str(path), compute=compute, progress=cut)


def test_a_network_that_the_kernels_do_not_know_is_computed_by_ggml() -> None:
    recipe = TinyModel(n_state=520, n_head=1)
    with Context.load(recipe.to_bytes(), compute="auto") as ctx:
        assert ctx.compute == "exact"
    with pytest.raises(BackendUnsupportedError, match="heads of 512"):
        Context.load(recipe.to_bytes(), compute="int8")


def test_models_come_through_pipes_and_reluctant_files(tmp_path: Path) -> None:
    path = pair(RECIPES["f16"]).path
    whole = results(str(path), "mixed")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    for found, expected in zip(results(str(pipe), "mixed"), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
    writer.join()

    class Reluctant:
        name = "slow.bin"

        def __init__(self, fails: bool) -> None:
            self.file, self.fails = path.open("rb"), fails

        def read(self) -> bytes:
            if self.fails:
                raise OSError(5, "Input/output error")
            return self.file.read(1 << 20)

    for found, expected in zip(results(Reluctant(False), "mixed"), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ModelError, match=r"reading slow\.bin failed"):
        Context.load(Reluctant(True))
    with pytest.raises(ModelFormatError, match="device"):
        Context.load("/dev/zero")


def test_ctrl_c_is_heard_between_two_pieces() -> None:
    """Without a progress callback, too: the reading threads stop, and the interrupt arrives."""
    code = (
        "import os, signal, sys, threading, numpy\n"
        "from whispyx.plugins import load; load()\n"
        "from whispyx._core.context import Context\n"
        "before = threading.active_count(), len(os.listdir('/proc/self/task'))\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.02)\n"
        "try:\n"
        "    for _ in range(1000): Context.load(sys.argv[1], compute='mixed')\n"
        "except KeyboardInterrupt:\n"
        "    after = threading.active_count(), len(os.listdir('/proc/self/task'))\n"
        "    print('heard', before == after)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(pair(RECIPES["f16"]).path)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "heard True", done.stderr
