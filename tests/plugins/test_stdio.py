"""Standard output holds what the command says and nothing else, however much the libraries beneath it talk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.toolkit import ROOT, SOURCES, Compiler, python

WORDS = ("Driver v1.2", "raw words", "kept back until the end", "driver unloaded")


@pytest.fixture(scope="module")
def talkative(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("talk")
    compiler.library(folder / "libggml-talk.so", [SOURCES / "talk.c"])
    return str(folder)


@pytest.mark.parametrize(
    "command", [("whispyx", "devices", "--json"), ("whispyx.plugins", "--json"), ("whispyx", "doctor", "--json")]
)
def test_output_for_machines_holds_nothing_of_a_library(talkative: str, command: tuple[str, ...]) -> None:
    done = python(*command, env={"WHISPYX_BACKEND_PATH": talkative}, flags=["-m"])
    assert done.returncode == (1 if "doctor" in command else 0), done.stderr  # it is no plugin, says the doctor
    assert json.loads(done.stdout)
    if "doctor" not in command:  # it loads libraries in children, and keeps what they print for itself
        assert all(word in done.stderr for word in WORDS)


IN_PROCESS = """
import os, sys
from whispyx.cli import main
print("before")
status = main(["devices", "--json"])
os.write(1, b"after\\n")
print("last")
sys.exit(status)
"""


def test_a_program_that_calls_the_command_has_its_standard_output_back(talkative: str) -> None:
    done = python(IN_PROCESS, env={"WHISPYX_BACKEND_PATH": talkative})
    assert done.returncode == 0, done.stderr
    before, _, rest = done.stdout.partition("\n")
    shown, end = json.JSONDecoder().raw_decode(rest)
    assert before == "before"
    assert shown["devices"]
    # What the library says once the command is over is the program's own affair.
    assert rest[end:].split() == ["after", "last", "driver", "unloaded"]
    assert all(word in done.stderr for word in WORDS[:3])


@pytest.mark.parametrize(
    ("streams", "status", "told"),
    [
        (">&-", 0, ""),
        (">/dev/full", 1, "No space left on device"),
        ("2>&-", 0, None),
        ("<&-", 0, ""),
        (">&- 2>&- <&-", 0, None),
    ],
)
def test_streams_that_cannot_be_used_do_no_harm(talkative: str, streams: str, status: int, told: str | None) -> None:
    if "/dev/full" in streams and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    environment = {**os.environ, "WHISPYX_BACKEND_PATH": talkative, "PYTHONPATH": str(ROOT)}
    line = f'exec "$0" -m whispyx devices --json {streams}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    if told is not None:
        assert told in done.stderr
    if ">" not in streams.replace("2>&-", ""):
        assert json.loads(done.stdout)["devices"]


def test_a_reader_that_leaves_ends_the_command_quietly(talkative: str) -> None:
    environment = {**os.environ, "WHISPYX_BACKEND_PATH": talkative, "PYTHONPATH": str(ROOT)}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "whispyx", "devices"]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=120)
    finally:
        os.close(writer)
    assert done.returncode == 141
    assert "Error" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("library", [False, True])
def test_children_tell_their_results_where_streams_are_closed(tmp_path: Path, closed: str, library: bool) -> None:
    answer = tmp_path / "answer.json"
    calls = (
        "from whispyx.plugins.doctor import examine; text = repr(examine().program)"
        if library
        else "from whispyx.cli import main; text = str(main(['doctor']))"
    )
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {calls}; open({str(answer)!r}, 'w').write(text)"
    line = f'exec "$0" -c "$1" {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable, code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert answer.read_text() == "0" if not library else "works=True" in answer.read_text()
