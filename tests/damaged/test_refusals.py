"""Damaged models of every format are refused, or work: a part of what `python tools/refusals.py` tries."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.damaged import attempts
from tests.damaged.attempts import Outcome, Reader, in_child
from tests.damaged.corpora import CASES, FOLDERS, Corpus, corpus, place
from tests.damaged.damage import Damage, Field, Original
from tests.trials import child
from tools import refusals
from whispyx.errors import ModelFormatError

N_CASES = 25
QUICK = refusals.Limits(seconds=0.1)
PATIENT = refusals.Limits(seconds=60.0)  # for a busy machine; the command has the real one


def problems(reader: str, size: str, folder: Path, limit: int | None) -> dict[str, str]:
    made = corpus(reader, size, folder / "whole", limit)
    (folder / "copy").mkdir()
    return refusals.row(made, made.run(folder / "copy"), PATIENT).wrong


@pytest.mark.parametrize("reader", CASES)
def test_some_damaged_copies_are_refused_or_work(reader: str, tmp_path: Path) -> None:
    assert problems(reader, "small", tmp_path, N_CASES) == {}


@child.slowest
@pytest.mark.parametrize("reader", CASES)
def test_all_damaged_copies_are_refused_or_work(reader: str, tmp_path: Path) -> None:
    assert problems(reader, "small", tmp_path, None) == {}


@child.slowest
@pytest.mark.parametrize("reader", CASES)
def test_damaged_copies_of_real_weights_are_refused_or_work(reader: str, tmp_path: Path) -> None:
    assert problems(reader, "real", tmp_path, 200) == {}


@pytest.mark.parametrize("reader", CASES)
def test_the_whole_model_loads_and_its_damages_differ_from_it(reader: str, tmp_path: Path) -> None:
    """Were it refused, so would be all of its copies, for a reason that is not theirs."""
    made = corpus(reader, "small", tmp_path / "whole", None)
    (tmp_path / "copy").mkdir()
    for file in sorted({damage.file for damage in made.damages}):
        size = (made.whole / file if file else made.whole).stat().st_size
        path = place(Damage("nothing", ((0, size),), file=file), made.whole, tmp_path / "copy")
        found = attempts.attempt("nothing", path, kind="vad" if reader == "vad" else "whisper")
        assert (found.how, found.message) == ("loaded", "")
    wanted = {"foreign: html", "foreign: lfs pointer", "foreign: zip", "foreign: empty"}
    assert wanted <= {damage.name.removeprefix(f"{damage.file}: ") for damage in made.damages}
    assert len(made.damages) >= 600
    file = originals(made)
    for damage in made.damages[:: len(made.damages) // 100]:
        if damage.pieces is not None and damage.verdict == "refused":
            assert damage.of(file(damage).data) != bytes(file(damage).data), damage.name


NAMED = {
    "html": "web page", "lfs pointer": "Git LFS pointer", "empty": "empty", "zip": "zip", "gzip": "gzip archive",
    "wav": "sound",
}  # fmt: skip


@pytest.mark.parametrize("reader", CASES)
def test_what_lies_under_the_name_of_a_file_is_named(reader: str, tmp_path: Path) -> None:
    """Of every file of a model: weights, settings, tokens."""
    made = corpus(reader, "small", tmp_path / "whole", None)
    (tmp_path / "copy").mkdir()
    for what, words in NAMED.items():
        damages = [damage for damage in made.damages if damage.name.endswith(f"foreign: {what}")]
        assert len(damages) >= (2 if reader in FOLDERS else 1)
        for outcome in replace(made, damages=damages).run(tmp_path / "copy"):
            assert (outcome.how, words in outcome.message) == ("refused", True), outcome


def originals(made: Corpus) -> Any:
    return cache(lambda damage: Original(made.whole / damage.file if made.reader in FOLDERS else made.whole))


def test_a_damaged_copy_is_the_same_on_disk_and_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "whole"
    path.write_bytes(bytes(range(256)) * 50)
    whole = Original(path)
    expected = {
        "cut": (whole.cut(77), whole.data[:77]),
        "other bytes": (whole.put("", {3: b"ab", 9: b"c"}), b"\0\1\2ab\5\6\7\x08c" + whole.data[10:]),
        "less": (whole.instead("", 5, 12_790), bytes(range(5)) + bytes(range(246, 256))),
        "more": (whole.again("", 2, 4), whole.data[:] + b"\2\3"),
        "other": (whole.swapped()[0], b""),
    }
    for name, (damage, content) in expected.items():
        (tmp_path / name).mkdir()
        copy = place(damage, path, tmp_path / name)
        assert damage.of(whole.data) == content == copy.read_bytes(), name
    place(replace(whole.gone(), file=""), path, tmp_path / "cut")
    assert not (tmp_path / "cut" / "whole").exists()


def ill(what: str) -> Any:
    """A reader that does what none may do."""

    def load(source: Any, way: int) -> Any:
        if what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "exits":
            os._exit(3)
        elif what == "prints":
            os.write(2, b"GGML_ASSERT")
        elif what == "wrong error":
            raise KeyError("n_vocab")
        elif what == "no reason":
            raise ModelFormatError("bad file")
        elif what == "no path":
            raise ModelFormatError("there is something wrong with this file")
        elif what == "takes memory":
            bytearray(b"x" * (300 << 20))
        elif what == "is slow":
            time.sleep(0.2)
        if what in ("takes memory", "is slow", "prints"):
            raise ModelFormatError(f"{source} is damaged in its header")
        return attempts.load_whisper(attempts.good("whisper")[0], 0)

    return Reader(load, attempts.use, READER.good)


READER = attempts.READERS["whisper"]
FAULTS = {
    "dies": "crashed: SIGKILL", "exits": "crashed: exit status 3", "prints": "printed: GGML_ASSERT",
    "wrong error": "wrong error: KeyError", "no reason": "no reason", "no path": "no reason",
    "takes memory": "it took ", "is slow": "it took 0.2", "takes all": "taken",
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_a_reader_at_fault_is_found_out(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if attempts.SANITIZED and what == "takes memory":
        pytest.skip("what a sanitizer keeps of freed memory is counted, too")
    attempts.good("whisper")
    monkeypatch.setitem(attempts.READERS, "whisper", ill(what))
    path = tmp_path / "whole"
    path.write_bytes(b"lmgg" + bytes(100))
    made = Corpus("ggml", "small", path, [Original(path).cut(50)], True)
    (tmp_path / "copy").mkdir()
    found = refusals.row(made, made.run(tmp_path / "copy"), QUICK if what == "is slow" else PATIENT)
    assert [problem[: len(FAULTS[what])] for problem in found.wrong.values()] == [FAULTS[what]]


def test_a_reader_that_hangs_is_ended() -> None:
    assert in_child(lambda: time.sleep(60), timeout=0.2)[0] == "hung"


def test_a_good_model_that_is_another_afterwards_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, model, expected = attempts.good("whisper")
    monkeypatch.setattr(attempts, "good", lambda kind: (content, model, [*expected, "more"]))
    path = tmp_path / "cut"
    path.write_bytes(content[:100])
    assert attempts.attempt("cut", path).how == "spoiled"


def test_the_command_sums_up_and_fails_when_one_copy_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [Outcome("a", "refused", "x", 0.25, 9), Outcome("b", "loaded"), Outcome("c", "crashed", "SIGSEGV")]

    def run(self: Corpus, scratch: Path) -> list[Outcome]:
        return outcomes[: len(self.damages)]

    monkeypatch.setattr(Corpus, "run", run)
    arguments = ["--format", "vad", "--size", "small", "--cases"]
    assert refusals.main([*arguments, "2"]) == 0
    assert "| vad | small | 2 | 1 | 1 | 0 | 0 | 0.25 s |" in capsys.readouterr().out
    assert refusals.main([*arguments, "3"]) == 1
    shown = capsys.readouterr()
    assert "| vad | small | 3 | 1 | 1 | 1 | 0 | 0.25 s |" in shown.out
    assert "vad small: c: crashed: SIGSEGV" in shown.err


def test_damages_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusals.main(["--format", "gguf", "--size", "small", "--cases", "0", "--list"]) == 0
    assert "gguf small: number of tensors = 0\n" in capsys.readouterr().out


def test_numbers_are_taken_modulo_their_size(tmp_path: Path) -> None:
    path = tmp_path / "whole"
    path.write_bytes(bytes(16))
    changed: Damage = Original(path).set(Field("n", 4, 2), -1)
    assert changed.of(bytes(16)) == bytes(4) + b"\xff\xff" + bytes(10)
