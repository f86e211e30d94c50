"""T18: damaged model files are refused with path and reason, or work. (whisper.cpp #3787, #3944, #4059; and others)

What a damaged file may cost is held to its limits by `python tools/refusals.py`; docs/testing.md has the figures.
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whispyx.plugins
from tests import data
from tests.damaged import attempts
from tests.damaged.corpora import SMALL
from tests.damaged.damage import Original
from tests.damaged.ggml import trial
from tests.oracle.vad_model import SmallSilero
from tests.trials import child
from tests.trials.bench import bench, files
from whispyx._core.context import Context
from whispyx._core.vad.detect import VadModel
from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError, StateError
from whispyx.models.formats.opening import open_model

N_CASES = 158
EXTRA_BYTES = 200_000_000
NAMED = {
    "html": "web page", "plain text": "Invalid username", "lfs pointer": "LFS", "empty": "empty",
    "the magic number of a zip": "zip", "the magic number of GGUF": "GGUF",
}  # fmt: skip
Said = list[tuple[str, str, str]]


def given(content: bytes, path: Path, way: int) -> Any:
    """One of the three forms in which a file can be given: path, bytes, file object."""
    if way == 0:
        path.write_bytes(content)
        return str(path)
    return content if way == 1 else io.BytesIO(content)


def load_and_use(source: Any) -> str:
    """Return what was said when it was refused, or "" for a model that works."""
    try:
        ctx = Context.load(open_model(source))
    except ModelError as error:
        return f"{type(error).__name__}: {error}"
    try:
        attempts.use(ctx)
    finally:
        ctx.close()
    return ""


def whole_trial(model: str, folder: str, every_way: bool) -> Said:
    """Load each case in this one process; (case, verdict, what was said) for each."""
    said: Said = []
    whole = Original(Path(model))
    path = Path(folder) / "case.bin"
    limit = 2 * whole.size + EXTRA_BYTES
    for i, case in enumerate(trial(Path(model))):
        content = case.of(whole.data)
        for way in range(3) if every_way else [i % 3]:
            source = given(content, path, way)
            attempts.forget_peak()
            before = attempts.memory("VmRSS")
            answer = load_and_use(source)
            grown = attempts.memory("VmHWM") - before
            assert grown < limit, f"{case.name}: {grown} bytes"
            assert way or not answer or str(path) in answer, f"{case.name}: which file? {answer}"
            said.append((case.name, case.verdict, answer))
    return said


def real_trial(every_way: bool) -> Said:
    with tempfile.TemporaryDirectory(prefix="whispyx-t18-") as folder, bench("tiny.en") as b:
        said = whole_trial(str(child.model("tiny.en")), folder, every_way)
        b.works_as_before()
        return said


def small_trial() -> Said:
    with tempfile.TemporaryDirectory(prefix="whispyx-t18-") as folder:
        _, model, expected = attempts.good("whisper")
        said = whole_trial(str(SMALL.write(Path(folder) / "small.bin")), folder, True)
        assert attempts.use(model) == expected
        return said


def check(said: Said, n_ways: int) -> None:
    """Every case ended as it must, and its refusals give reasons."""
    assert len(said) == N_CASES * n_ways
    assert len({name for name, _, _ in said}) == N_CASES
    taken = [name for name, verdict, answer in said if verdict == "refused" and not answer]
    assert not taken, f"loaded as models: {taken}"
    works = {name for name, _, answer in said if not answer}
    assert works, "not even another type of weights in the header was harmless"
    for name, _, answer in said:
        if answer:
            assert answer.startswith("ModelFormatError: "), f"{name}: {answer}"
            assert len(answer) > len("ModelFormatError: ") + 20, f"{name}: no reason in {answer!r}"
            assert " offset " in answer or name in NAMED or name.startswith("cut to "), f"{name}: where? {answer}"
        if name in NAMED:
            assert NAMED[name].lower() in answer.lower(), f"{name}: {answer}"


def test_every_case_on_random_weights_by_path_bytes_and_file() -> None:
    check(child.run(small_trial), 3)


def test_every_case_on_real_weights() -> None:
    files("tiny.en")
    check(child.run(real_trial, False), 1)


@child.slow
def test_every_case_on_real_weights_by_path_bytes_and_file() -> None:
    files("tiny.en")
    check(child.run(real_trial, True), 3)


@pytest.mark.parametrize("name", sorted(data.FOR_TESTS))
def test_a_file_without_tensors_hears_nothing_and_says_what_it_lacks(name: str) -> None:
    """whisper.cpp publishes such files, for tests of the vocabulary."""
    whispyx.plugins.load()
    with Context.load(str(data.or_skip(data.for_tests_model, name))) as ctx, ctx.new_state() as state:
        assert ctx.n_tensors == 0
        assert attempts.use(ctx) == []
        with pytest.raises(StateError, match="no tensors"):
            state.encode(0, 1)


@pytest.mark.parametrize("n", [1, 64, 5000, 100_000])
def test_random_bytes_are_no_model(tmp_path: Path, n: int) -> None:
    for way in range(3):
        source = given(np.random.default_rng(n).bytes(n), tmp_path / "noise.bin", way)
        assert load_and_use(source).startswith("ModelFormatError: ")


def test_a_folder_a_missing_path_and_a_file_that_may_not_be_read_are_named(tmp_path: Path) -> None:
    closed = SMALL.write(tmp_path / "closed.bin")
    closed.chmod(0)
    cases = [(tmp_path, ModelFormatError), (tmp_path / "nothing.bin", ModelNotFoundError)]
    if not os.access(closed, os.R_OK):  # nothing is closed to root
        cases.append((closed, ModelError))
    for path, kind in cases:
        with pytest.raises(kind, match=path.name):
            open_and_load(str(path))


def open_and_load(source: Any) -> None:
    Context.load(open_model(source)).close()


def test_a_voice_activity_model_is_no_whisper_model_nor_the_reverse(tmp_path: Path) -> None:
    vad, whisper = tmp_path / "vad.bin", SMALL.write(tmp_path / "whisper.bin")
    vad.write_bytes(SmallSilero().to_bytes())
    with pytest.raises(ModelFormatError, match="voice activity"):
        open_and_load(str(vad))
    with pytest.raises(ModelFormatError, match="not a voice activity model"):
        VadModel.load(whisper)


def test_the_real_voice_activity_model_is_no_whisper_model() -> None:
    with pytest.raises(ModelFormatError, match="voice activity"):
        open_and_load(str(data.or_skip(data.silero_ggml)))
