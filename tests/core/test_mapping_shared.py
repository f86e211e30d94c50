"""Mapped files that are written to, or models that are closed, while several threads or processes use them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.core.mapped import SOUND, computes, program, write_model
from whispyx import Model

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_model(tmp_path)


THREADS = """
models = [Model(path, compute=compute, max_jobs=3, n_threads=1) for _ in range(2)]
first = attempt(models[0])
stop, told = threading.Event(), [[] for _ in range(4)]

def work(i):
    while not stop.is_set() or len(told[i]) < 2:
        told[i].append(attempt(models[i % 2]))

threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
for _ in range(12):
    n = [len(found) for found in told]
    while all(len(found) == before for found, before in zip(told, n)) and any(t.is_alive() for t in threads):
        threading.Event().wait(0.001)
    if how == "shorter":
        os.truncate(path, len(whole) // 4)
    elif how == "touched":
        os.utime(path)
    elif how == "replaced":
        with open(path + ".new", "wb") as file:
            file.write(whole)
        os.replace(path + ".new", path)
    elif how == "closed":
        for model in models:
            model.close()
    threading.Event().wait(0.02)
    if how == "shorter":
        restore()
stop.set()
for thread in threads:
    thread.join()
kinds = sorted({found if isinstance(found, str) else found[0] for each in told for found in each})
last = [attempt(model) for model in models]
print(json.dumps([first, kinds, last]))
"""


@pytest.mark.parametrize("compute", computes())
@pytest.mark.parametrize("how", ["shorter", "touched", "replaced", "closed"])
def test_threads_get_what_the_model_says_or_an_error(gguf: Path, compute: str, how: str) -> None:
    done = program(THREADS, gguf, compute, how)
    assert done.returncode == 0, done.stderr
    first, kinds, last = json.loads(done.stdout)
    allowed = {
        "shorter": {"ModelError", "ModelFormatError"}, "touched": {"ModelError", "ModelFormatError"},
        "replaced": set(), "closed": {"StateError"},
    }[how]  # fmt: skip
    assert first and set(kinds) <= {first, *allowed}
    if how == "closed":
        assert [found[0] for found in last] == ["StateError"] * 2
    else:
        assert last == [first] * 2


CORE = """
import whispyx.plugins
whispyx.plugins.load()
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.models.formats.opening import open_model
"""

CLOSED = """
told = []

def make():
    try:
        context.new_state().close()
        told.append("made")
    except whispyx.WhispyxError as error:
        told.append(type(error).__name__)

for _ in range(20):
    context = Context.load(open_model(path), compute=compute)
    os.utime(path, ns=(_, _))       # whoever comes next reads the file again, and the others wait for that
    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    threading.Event().wait(0.002 * (_ % 5))
    context.close()
    for thread in threads:
        thread.join()
    told.append(os.path.basename(path) in open("/proc/self/maps").read())
print(json.dumps(told))
"""


@pytest.mark.parametrize("compute", computes())
def test_a_model_that_is_closed_while_its_file_is_read_again_stays_closed(gguf: Path, compute: str) -> None:
    done = program(CORE + CLOSED, gguf, compute)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == 20 * 7
    assert set(told) <= {"made", "StateError", False}


FORKED = """
context = Context.load(open_model(path), compute=compute)

def recognise():
    try:
        with context.new_state() as state:
            found = full(context, state, FullParams(n_threads=1, temperature_inc=0.0, language="en"), sound)
            return b"".join(segment.text for segment in found.segments).decode()
    except whispyx.WhispyxError as error:
        return type(error).__name__

told = [recognise()]
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    before = recognise()
    os.truncate(path, 0)
    os.write(writing, json.dumps([before, recognise()]).encode())
    os._exit(0)
os.close(writing)
with open(reading) as answer:
    told += json.load(answer)
status = os.waitpid(child, 0)[1]
told.append(recognise())
restore()
told.append(recognise())
print(json.dumps([status, told]))
"""


@pytest.mark.parametrize("compute", computes())
def test_a_forked_process_maps_the_same_file(gguf: Path, compute: str) -> None:
    done = program(CORE + FORKED, gguf, compute)
    assert done.returncode == 0, done.stderr
    status, (first, in_child, shorter_in_child, shorter, after) = json.loads(done.stdout)
    assert status == 0
    assert in_child == after == first != ""
    assert shorter_in_child == shorter == "ModelFormatError"


def test_a_file_that_may_only_be_read_and_one_that_is_gone(gguf: Path) -> None:
    gguf.chmod(0o400)
    with Model(gguf, compute="exact") as model:
        first = model.transcribe(SOUND, "en").text
        with Model(gguf, compute="exact") as other:
            gguf.unlink()
            assert other.transcribe(SOUND, "en").text == first != ""
        assert model.transcribe(SOUND, "en").text == first
