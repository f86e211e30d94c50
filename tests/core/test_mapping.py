"""Models that are used where they lie in their files: what that saves, and what happens when a file is written to."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.core.mapped import RECIPE, SOUND, computes, program, tells_of_writing, write_model
from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from whispyx import Model, ParamsError
from whispyx._core.context import Context
from whispyx._core.kernels import name as kernels_name
from whispyx.models.formats.opening import open_model

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

CHILD = """
model = Model(path, compute=compute)
first = attempt(model)
with open(path, "r+b") as file:
    if how == "emptied":
        file.truncate(0)
    elif how == "shorter":
        file.truncate(len(whole) // 3)
    elif how == "overwritten":
        file.write(whole[: len(whole) // 2])
        os.utime(path, ns=(1, 1))
second = attempt(model)
restore()
print(json.dumps([first, second, attempt(model)]))
"""


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_model(tmp_path)


def logprobs(found: Any) -> list[float]:
    return [token.logprob for segment in found.segments for token in segment.tokens]


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_tensors_of_a_gguf_file_stay_in_it(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Model(gguf, compute="exact") as model:
        assert mapped(gguf)
        weight_bytes = model.info.weight_bytes
        there = model.transcribe(SOUND, "en")
    assert not mapped(gguf)
    monkeypatch.setenv("WHISPYX_MMAP", "0")
    with Model(gguf, compute="exact") as model:
        assert not mapped(gguf)
        assert weight_bytes <= model.info.weight_bytes <= 1.01 * weight_bytes  # tensors of a buffer are aligned
        copied = model.transcribe(SOUND, "en")
    assert there.text == copied.text != ""
    assert logprobs(there) == logprobs(copied)


@pytest.mark.skipif(kernels_name() is None, reason="no kernels for this machine")
@pytest.mark.parametrize("weight_type", ["f16", "bf16", "q8_0"])
def test_kernels_leave_the_embedding_in_the_file(
    weight_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = TinyModel(n_vocab=51865, n_text_ctx=64, end_after=20, weight_type=weight_type)
    path = tmp_path / "model.bin"
    shutil.copy(pair(recipe).path, path)
    with Model(path, compute="mixed") as model:
        assert mapped(path) == (weight_type != "q8_0")  # what must be unpacked is memory of our own
        there = model.transcribe(SOUND, "en")
    monkeypatch.setenv("WHISPYX_MMAP", "0")
    with Model(path, compute="mixed") as model:
        copied = model.transcribe(SOUND, "en")
    assert there.text == copied.text != ""
    assert logprobs(there) == logprobs(copied)


def test_the_embedding_may_begin_at_any_byte(tmp_path: Path) -> None:
    """The vocabulary before it has any length: here one byte more in a token moves all tensors of the file."""
    if kernels_name() is None:
        pytest.skip("no kernels for this machine")
    texts = []
    for more in range(2):
        whole = bytearray(pair(RECIPE).path.read_bytes())
        at = 4 + 11 * 4 + 8 + 80 * 201 * 4 + 4  # magic, settings, filters, number of tokens: the first token
        size = int.from_bytes(whole[at : at + 4], "little")
        token = bytes(whole[at + 4 : at + 4 + size]) + b"x" * more
        whole[at : at + 4 + size] = (size + more).to_bytes(4, "little") + token
        path = tmp_path / f"model{more}.bin"
        path.write_bytes(whole)
        with Model(path, compute="mixed") as model:
            assert mapped(path)
            texts.append([t.id for s in model.transcribe(SOUND, "en").segments for t in s.tokens])
    assert texts[0] == texts[1] != []


@pytest.mark.parametrize("compute", computes())
@pytest.mark.parametrize("what", ["emptied", "shorter", "overwritten"])
def test_a_file_that_is_written_to_is_an_error_and_nothing_else(gguf: Path, compute: str, what: str) -> None:
    done = program(CHILD, gguf, compute, what)
    assert done.returncode == 0, done.stderr
    first, second, third = json.loads(done.stdout)
    assert isinstance(first, str) and first
    if what == "overwritten":  # by the same bytes: the file is read again
        assert second == first
    else:
        assert second[0] == "ModelFormatError" and str(gguf) in second[1]
    assert third == first  # the same file is there again: the model goes on


DURING = """
runner = whispyx.Runner(path, compute=compute)
runner.set_audio(sound)
runner.encode()
before = runner.prefill(runner.prompt())
if how == "emptied":
    os.truncate(path, 0)
else:
    os.utime(path, ns=(1, 1))
told = []
for attempt in (lambda: runner.step([100]), runner.encode):
    try:
        attempt()
        told.append("nothing")
    except whispyx.ModelError as error:
        told.append(str(error))
print(json.dumps(told))
"""


@pytest.mark.parametrize("compute", computes())
@pytest.mark.parametrize("what", ["emptied", "touched"])
def test_a_file_that_is_written_to_in_the_middle_of_a_job_is_told(gguf: Path, compute: str, what: str) -> None:
    tells_of_writing(DURING, gguf, compute, what)


def test_a_file_that_takes_the_place_of_another_changes_nothing(gguf: Path) -> None:
    """Renaming leaves the file that is open as it is: the way to put a new one there."""
    with Model(gguf, compute="exact") as model:
        first = model.transcribe(SOUND, "en").text
        other = gguf.with_name("other.gguf")
        other.write_bytes(b"something else")
        other.replace(gguf)
        assert model.transcribe(SOUND, "en").text == first
        gguf.unlink()
        assert model.transcribe(SOUND, "en").text == first


def test_many_models_may_be_open_and_none_is_left(gguf: Path) -> None:
    """More than the handler has places for: those that come later are copied."""
    before = len(os.listdir("/proc/self/fd"))
    models = [Context.load(open_model(str(gguf)), compute="exact") for _ in range(300)]
    assert mapped(gguf)
    for model in models:
        model.close()
    assert not mapped(gguf)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("compute", computes())
def test_closed_states_that_somebody_keeps_do_not_keep_the_weights(gguf: Path, compute: str) -> None:
    model = Context.load(open_model(str(gguf)), compute=compute)
    states = [model.new_state() for _ in range(2)]
    model.close()
    assert mapped(gguf)
    for state in states:
        state.close()
    assert not mapped(gguf)


@pytest.mark.parametrize("value", ["yes", "2", "-1"])
def test_an_unknown_value_of_the_variable_is_refused(gguf: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISPYX_MMAP", value)
    with pytest.raises(ParamsError, match="WHISPYX_MMAP"):
        Model(gguf, compute="exact")


def test_what_is_in_memory_already_is_read_from_there(gguf: Path) -> None:
    for source in (gguf.read_bytes(), open(gguf, "rb")):  # noqa: SIM115  read and closed below
        with Model(source, compute="exact") as model:
            assert model.transcribe(SOUND, "en").text
        closed: Any = getattr(source, "close", lambda: None)
        closed()
