"""Models that are used where they lie in their files: what that saves, and what happens when a file is written to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whispyx
import whispyx.plugins
from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx import Model, ParamsError
from whispyx._core.context import Context
from whispyx._core.kernels import name as kernels_name
from whispyx.conversion import convert
from whispyx.models.formats.opening import open_model

whispyx.plugins.load()
SOUND = speechlike(4.0, seed=5)
RECIPE = TinyModel(n_vocab=51865, n_text_ctx=64, end_after=20)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

CHILD = """
import faulthandler, json, os, sys
import numpy as np
import whispyx
from whispyx import Model
path, compute, what = sys.argv[1:4]
sound = np.load(sys.argv[4])
def attempt():
    try:
        return model.transcribe(sound, "en").text
    except whispyx.WhispyxError as error:
        return [kind.__name__ for kind in type(error).__mro__] + [str(error)]
model = Model(path, compute=compute)
first = attempt()
whole = open(path, "rb").read()
with open(path, "r+b") as file:
    if what == "emptied":
        file.truncate(0)
    elif what == "shorter":
        file.truncate(len(whole) // 3)
    elif what == "overwritten":
        file.write(whole[: len(whole) // 2])
        os.utime(path, ns=(1, 1))
second = attempt()
with open(path, "wb") as file:
    file.write(whole)
third = attempt()
print(json.dumps([first, second, third]))
"""


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    convert(pair(RECIPE).path, tmp_path / "model.gguf", progress=None)
    return tmp_path / "model.gguf"


def logprobs(found: Any) -> list[float]:
    return [token.logprob for segment in found.segments for token in segment.tokens]


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def computes() -> list[str]:
    return ["exact", "mixed"] if kernels_name() is not None else ["exact"]


def child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


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
    np.save(gguf.parent / "sound.npy", SOUND)
    done = child(CHILD, str(gguf), compute, what, str(gguf.parent / "sound.npy"))
    assert done.returncode == 0, done.stderr
    first, second, third = json.loads(done.stdout)
    assert isinstance(first, str) and first
    if what == "overwritten":  # by the same bytes: the file is read again
        assert second == first
    else:
        assert isinstance(second, list) and "ModelError" in second and str(gguf) in second[-1]
    assert third == first  # the same file is there again: the model goes on


DURING = """
import json, os, sys
import numpy as np
import whispyx
path, compute, what = sys.argv[1:4]
runner = whispyx.Runner(path, compute=compute)
runner.set_audio(np.load(sys.argv[4]))
runner.encode()
before = runner.prefill(runner.prompt())
if what == "emptied":
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
    np.save(gguf.parent / "sound.npy", SOUND)
    done = child(DURING, str(gguf), compute, what, str(gguf.parent / "sound.npy"))
    assert done.returncode == 0, done.stderr
    for told in json.loads(done.stdout):
        assert str(gguf) in told and "written to" in told


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


FOREIGN = """
import faulthandler, mmap, os, sys
from whispyx import Model
if sys.argv[3] == "faulthandler":
    faulthandler.enable()
model = Model(sys.argv[1], compute="exact")
with open(sys.argv[2], "w+b") as file:
    file.write(bytes(8192))
    file.flush()
    view = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    if sys.argv[3] == "sent":
        os.kill(os.getpid(), 7)
    view[5000]
"""


@pytest.mark.parametrize("how", ["plain", "faulthandler", "sent"])
def test_errors_of_others_mappings_end_the_process_as_ever(gguf: Path, how: str) -> None:
    done = child(FOREIGN, str(gguf), str(gguf.parent / "foreign"), how)
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert ("Fatal Python error: Bus error" in done.stderr) == (how == "faulthandler")


def test_many_models_may_be_open_and_none_is_left(gguf: Path) -> None:
    """More than the handler has places for: those that come later are copied."""
    before = len(os.listdir("/proc/self/fd"))
    models = [Context.load(open_model(str(gguf)), compute="exact") for _ in range(300)]
    assert mapped(gguf)
    for model in models:
        model.close()
    assert not mapped(gguf)
    assert len(os.listdir("/proc/self/fd")) == before


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
