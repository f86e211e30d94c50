"""Mapped files that become shorter, beside handlers of others: ours ends no process, and takes nothing from theirs."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.core.mapped import computes, program, tells_of_writing, write_model

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sends the signals of Linux")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_model(tmp_path)


HANDLERS = """
import mmap, time

def python_handler(number, frame):
    print("theirs", flush=True)
    os._exit(7)

def set_handler():
    if how.startswith("faulthandler"):
        faulthandler.enable()
    elif how.startswith("python"):
        signal.signal(signal.SIGBUS, python_handler)
    elif how.startswith("default"):
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
    elif how.startswith("ignored"):
        signal.signal(signal.SIGBUS, signal.SIG_IGN)
    elif how.startswith("blocked"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

if how.endswith("before"):
    set_handler()
model = Model(path, compute=compute)
first = attempt(model)
if how.endswith("after"):
    set_handler()
"""

OURS = (
    HANDLERS
    + """
told = []
for _ in range(2):
    runner = whispyx.Runner(path, compute=compute)
    runner.set_audio(sound)
    runner.encode()
    runner.prefill(runner.prompt())
    if how.endswith("between"):
        set_handler()       # over ours, the second time as well
    os.truncate(path, 0)
    for attempt_at in (lambda: runner.step([100]), runner.encode):      # both read what is no longer there
        try:
            attempt_at()
            told.append("nothing")
        except whispyx.ModelError as error:
            told.append(str(error))
    restore()
    runner.close()
print(json.dumps([first, told, attempt(model)]))
"""
)
SETTING = ("faulthandler", "python", "default", "ignored")
HOWS = [f"{what} {when}" for what in SETTING for when in ("before", "after")]


@pytest.mark.parametrize("compute", computes())
@pytest.mark.parametrize("how", [*HOWS, *(f"{what} between" for what in (*SETTING, "blocked"))])
def test_a_shorter_file_is_an_error_whoever_handles_the_signal(gguf: Path, compute: str, how: str) -> None:
    done = program(OURS, gguf, compute, how)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Fatal" not in done.stderr
    first, told, last = json.loads(done.stdout)
    assert len(told) == 4
    for each in told:
        assert str(gguf) in each and "written to" in each
    assert last == first != ""


MIDDLE = """
runner = whispyx.Runner(path, compute=compute)
runner.set_audio(sound)
runner.encode()
runner.prefill(runner.prompt())
if how == "faulthandler":
    faulthandler.enable()
found = os.stat(path)
told = []
for what in ("shorter", "whole again"):
    if what == "shorter":
        os.truncate(path, 0)
    else:
        restore()
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    try:
        runner.step([100])
        told.append("nothing")
    except whispyx.ModelError as error:
        told.append(str(error))
print(json.dumps(told))
"""


@pytest.mark.parametrize("compute", computes())
@pytest.mark.parametrize("how", ["", "faulthandler"])
def test_what_was_missing_once_stays_an_error(gguf: Path, compute: str, how: str) -> None:
    """Also where the same file, with its old date, is back before anybody looks: zeros were read meanwhile."""
    tells_of_writing(MIDDLE, gguf, compute, how)


RAISED = """
model = Model(path, compute=compute)
faulthandler.enable()
os.truncate(path, 0)
signal.raise_signal(signal.SIGBUS)
print(json.dumps(attempt(model)))
"""


def test_a_signal_without_its_address_is_not_the_end_while_a_file_is_damaged(gguf: Path) -> None:
    """As faulthandler raises it, which has our handler put back before."""
    done = program(RAISED, gguf, "exact")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] == "ModelFormatError"


FOREIGN = (
    HANDLERS
    + """
if how.startswith("python"):
    os.kill(os.getpid(), signal.SIGBUS)
    time.sleep(60)
assert attempt(model) == first
with open(path + ".foreign", "w+b") as file:
    file.write(bytes(8192))
    file.flush()
    view = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    if how.startswith("sent"):
        os.kill(os.getpid(), signal.SIGBUS)
    elif how.startswith("raised"):
        signal.raise_signal(signal.SIGBUS)
    view[5000]
"""
)


@pytest.mark.parametrize("how", [*HOWS, "sent", "raised"])
def test_errors_of_others_mappings_go_where_they_went(gguf: Path, how: str) -> None:
    done = program(FOREIGN, gguf, "exact", how)
    if how.startswith("python"):
        assert (done.returncode, done.stdout) == (7, "theirs\n"), done.stderr
    else:
        assert done.returncode == -signal.SIGBUS, done.stderr
    assert done.stderr.count("Fatal Python error: Bus error") == how.startswith("faulthandler")
