"""The command line above a fake engine: where output goes, exit codes, what is said when something fails."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whispyx import AudioError, BackendNotFoundError, ComputeError, ModelNotFoundError, ParamsError
from whispyx.cli import Status, main
from whispyx.cli.console import describe, printable
from whispyx.cli.transcribe import plan_output
from whispyx.languages import LANGUAGES

from .fakes import FakeContext, FakeEngine, FakeSegment, FakeState, seconds_of_audio

Install = Callable[[FakeEngine], FakeEngine]
Capture = pytest.CaptureFixture[str]


class FileEngine(FakeEngine):
    """Takes files that hold "good" for three seconds of speech, and all others for damaged ones."""

    def load_audio(self, audio: Any, sample_rate: float | None) -> Any:
        data = audio.read() if hasattr(audio, "read") else Path(audio).read_bytes()
        if data != b"good":
            raise AudioError(f"{audio} is no sound file")
        return seconds_of_audio(3.0)


TWO = (FakeSegment(0, 100, b" Good morning."), FakeSegment(100, 250, " Grüße, 日本.".encode()))


def names_in(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.wav", "b.wav"):
        (tmp_path / name).write_text("good")
    (tmp_path / "bad.wav").write_text("noise")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_text_goes_to_standard_output_and_nothing_else_anywhere(
    install: Install, folder: Path, capsys: Capture
) -> None:
    install(FileEngine(TWO))
    assert main(["transcribe", "a.wav"]) == Status.OK
    out, err = capsys.readouterr()
    assert out == "Good morning.\nGrüße, 日本.\n" and err == ""
    assert names_in(".") == ["a.wav", "b.wav", "bad.wav"]


def test_text_appears_as_it_is_found(install: Install, folder: Path, capsys: Capture) -> None:
    seen: list[str] = []
    install(FileEngine(TWO, during=lambda state: seen.append(capsys.readouterr().out)))
    assert main(["transcribe", "a.wav"]) == 0
    assert seen == ["", "Good morning.\n"]


def test_times_are_printed_when_asked_for(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO))
    main(["transcribe", "a.wav", "--times"])
    assert capsys.readouterr().out.splitlines()[1] == "[00:00:01.000 --> 00:00:02.500]  Grüße, 日本."


def test_several_files_are_told_apart(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO[:1]))
    assert main(["transcribe", "a.wav", "b.wav"]) == 0
    assert capsys.readouterr().out == "==> a.wav <==\nGood morning.\n\n==> b.wav <==\nGood morning.\n"


def test_files_are_written_in_every_format_to_the_folder(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "b.wav", "-o", "out/deep", "-f", "txt,srt, vtt,JSON,txt"]) == 0
    assert capsys.readouterr() == ("", "")
    names = sorted(path.name for path in (folder / "out" / "deep").iterdir())
    assert names == sorted(f"{stem}.{ending}" for stem in "ab" for ending in ("txt", "srt", "vtt", "json"))
    assert json.loads((folder / "out/deep/a.json").read_text("utf-8"))["language"] == "fr"


def test_a_folder_alone_means_txt_and_a_format_alone_means_this_folder(install: Install, folder: Path) -> None:
    install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "-o", "out"]) == 0
    assert names_in("out") == ["a.txt"]
    assert main(["transcribe", "a.wav", "-f", "srt"]) == 0
    assert Path("a.srt").read_text("utf-8").startswith("1\n00:00:00,000 --> 00:00:01,000\nGood morning.\n")


def test_one_format_can_go_to_standard_output(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "-f", "vtt", "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("WEBVTT\n\n00:00:00.000 --> ")


def test_files_of_one_stem_keep_their_endings_apart() -> None:
    plan = plan_output(["x/talk.wav", "x/talk.mp3", "other.ogg", "-"], "out", "txt")
    assert {file: path.as_posix() for file, path in plan.paths.items()} == {
        "x/talk.wav": "out/talk.wav", "x/talk.mp3": "out/talk.mp3", "other.ogg": "out/other", "-": "out/stdin",
    }  # fmt: skip


def test_files_that_would_overwrite_each_other_are_refused_before_any_work(install: Install, capsys: Capture) -> None:
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "x/talk.wav", "y/talk.wav", "-o", "out"]) == Status.USAGE
    assert "two files would be written to talk.wav.txt" in capsys.readouterr().err
    assert engine.opened == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-f", "docx"], "unknown output format 'docx'"),
        (["-f", ","], "at least one format"),
        (["-o", "a.wav"], "-o must name a folder"),
        (["-o", "-", "-f", "txt,srt"], "one file in one format"),
        (["-l", "klingon"], "unknown language 'klingon'"),
        (["--temperature", "99"], "temperature must be a number from 0 to 10; got 99"),
        (["--threads", "0"], "n_threads must be a whole number from 1 to 512; got 0"),
        (["--best-of", "many"], "invalid int value"),
        (["--no-such-flag"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_told_before_the_model_is_opened(
    install: Install, folder: Path, capsys: Capture, arguments: list[str], said: str
) -> None:
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", *arguments]) == Status.USAGE == 2
    out, err = capsys.readouterr()
    assert said in err and out == "" and "Traceback" not in err
    assert engine.opened == []


def test_no_command_is_wrong_usage(capsys: Capture) -> None:
    assert main([]) == 2
    assert "usage: whispyx" in capsys.readouterr().err


def test_one_bad_file_does_not_stop_the_others(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO[:1]))
    assert main(["transcribe", "missing.wav", "bad.wav", "a.wav", "-o", "out"]) == Status.FAILED == 1
    err = capsys.readouterr().err
    assert err.splitlines() == ["whispyx: missing.wav: no such file", "whispyx: bad.wav is no sound file"]
    assert names_in("out") == ["a.txt"]


def test_no_model_is_opened_when_no_file_exists(install: Install, folder: Path, capsys: Capture) -> None:
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "missing.wav"]) == 1
    assert engine.opened == []


def test_an_output_that_cannot_be_written_fails_its_file_only(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO[:1]))
    (folder / "out" / "a.txt").mkdir(parents=True)
    assert main(["transcribe", "a.wav", "b.wav", "-o", "out"]) == 1
    assert "a.wav: " in capsys.readouterr().err
    assert Path("out/b.txt").read_text() == "Good morning.\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ModelNotFoundError("no model is called 'bse'"), 3),
        (BackendNotFoundError("no plugin 'vulkna'"), 4),
        (ParamsError("malformed"), 2),
        (KeyError("oops"), 70),
    ],
)
def test_the_exit_code_tells_what_failed(
    install: Install, folder: Path, capsys: Capture, error: Exception, status: int
) -> None:
    class Failing(FileEngine):
        def open(self, *args: Any, **kwargs: Any) -> FakeContext:
            raise error

    install(Failing())
    assert main(["transcribe", "a.wav"]) == status
    err = capsys.readouterr().err
    assert err.startswith("whispyx: ") and err.count("\n") == 1 and "Traceback" not in err


def test_debug_shows_the_traceback(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine())
    assert main(["transcribe", "bad.wav", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    assert main(["--debug", "transcribe", "bad.wav"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_computation_that_fails_fails_its_file(install: Install, folder: Path, capsys: Capture) -> None:
    failures = iter([ComputeError("the encoder failed", code=-6), None])

    def fail(state: FakeState) -> None:
        error = next(failures)
        if error:
            raise error

    install(FileEngine(TWO[:1], during=fail))
    assert main(["transcribe", "a.wav", "b.wav", "-o", "out"]) == 1
    assert capsys.readouterr().err == "whispyx: a.wav: the encoder failed\n"
    assert names_in("out") == ["b.txt"]


def test_ctrl_c_keeps_what_was_recognised(install: Install, folder: Path, capsys: Capture) -> None:
    calls = iter([None, KeyboardInterrupt()])

    def interrupt(state: FakeState) -> None:
        error = next(calls)
        if error:
            raise error

    install(FileEngine(TWO, during=interrupt))
    assert main(["transcribe", "a.wav", "b.wav", "-o", "out", "-f", "txt,json"]) == Status.INTERRUPTED == 130
    assert capsys.readouterr().err == "whispyx: interrupted; a.wav was recognised up to 1.0 s\n"
    assert Path("out/a.txt").read_text() == "Good morning.\n"
    assert json.loads(Path("out/a.json").read_text())["complete"] is False
    assert names_in("out") == ["a.json", "a.txt"]


def test_ctrl_c_before_anything_was_recognised_writes_nothing(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO, during=lambda state: (_ for _ in ()).throw(KeyboardInterrupt())))
    assert main(["transcribe", "a.wav", "-o", "out"]) == 130
    assert "nothing of a.wav was recognised" in capsys.readouterr().err
    assert not Path("out").exists()


def test_sound_comes_from_standard_input(install: Install, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    install(FileEngine(TWO[:1]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"good")))
    assert main(["transcribe", "-"]) == 0
    assert capsys.readouterr().out == "Good morning.\n"


def test_options_reach_the_engine(install: Install, folder: Path) -> None:
    engine = install(FileEngine(TWO))
    arguments = ["-l", "German", "--translate", "--prompt", "Names:", "--no-context", "--temperature", "0.4"]
    assert main(["transcribe", "a.wav", *arguments, "-t", "2", "--seed", "3", "--offset", "1"]) == 0
    asked = engine.asked[0].fields
    assert (asked["language"], asked["translate"], asked["initial_prompt"]) == ("de", True, "Names:")
    assert (asked["n_max_text_ctx"], asked["temperature"], asked["n_threads"]) == (0, 0.4, 2)
    assert (asked["seed"], asked["offset_ms"]) == (3, 1000)


def test_every_language_is_taken(install: Install, folder: Path) -> None:
    engine = install(FileEngine())
    for code in list(LANGUAGES)[:99]:
        assert main(["transcribe", "a.wav", "-l", code]) == 0
    assert [asked.fields["language"] for asked in engine.asked] == list(LANGUAGES)[:99]


def test_info_tells_what_a_loaded_model_is_for_people_and_for_programs(install: Install, capsys: Capture) -> None:
    install(FakeEngine())
    assert main(["info", "base", "--load"]) == 0
    assert "f16, 147.0 MB" in capsys.readouterr().out
    assert main(["info", "base", "--compute", "exact", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["type"] == "base" and found["n_audio_layer"] == 6 and len(found["languages"]) == 99
    assert main(["info", "base", "--load", "--hash"]) == 2
    assert "--hash" in capsys.readouterr().err


def test_verbose_tells_more_on_standard_error(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "-v"]) == 0
    assert "3.0 s of audio, language fr" in capsys.readouterr().err


def test_descriptions_of_errors_are_one_paragraph() -> None:
    assert describe(ValueError("a\n  b")) == "a b"
    assert describe(OSError(28, "No space left on device", "x.txt")) == "x.txt: No space left on device"
    assert describe(KeyError()) == "KeyError"


# ---- as a process of its own

CHILD = """
import sys
sys.path.insert(0, {root!r})
from tests.high.fakes import FakeEngine, FakeSegment, seconds_of_audio
from whispyx.model import Model
from whispyx.cli import main
class Engine(FakeEngine):
    def load_audio(self, audio, sample_rate):
        open(audio, "rb").close()
        return seconds_of_audio(3.0)
Model._engine = Engine(tuple(FakeSegment(i, i + 1, {text}.encode()) for i in range({count})))
sys.exit(main(sys.argv[1:]))
"""
ROOT = str(Path(__file__).resolve().parents[2])


def child(*arguments: str | bytes, text: str = " Grüße 日本", count: int = 1, **settings: Any) -> Any:
    script = CHILD.format(root=ROOT, text=ascii(text), count=count)
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings
    )


@pytest.mark.parametrize("encoding", [None, "ascii", "cp1252", "utf-8", "latin-1:strict"])
def test_no_locale_and_no_encoding_makes_printing_fail(folder: Path, encoding: str | None) -> None:
    name = os.fsdecode(b"\xff \xd0\xbf\xd1\x80.wav")
    Path(name).write_text("good")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment.pop("PYTHONIOENCODING", None)
    if encoding:
        environment["PYTHONIOENCODING"] = encoding
    process = child("transcribe", name, "a.wav", "gone-\u65e5.wav", env=environment)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err.decode("utf-8", "replace")
    assert b"Gr" in out and b"Traceback" not in err and b"gone-" in err
    if encoding in (None, "ascii", "utf-8"):
        assert "Grüße 日本" in out.decode("utf-8")
    else:
        assert "Grüße \\u65e5\\u672c".encode("cp1252") in out


def test_help_prints_in_ascii_everywhere() -> None:
    for command in ([], ["transcribe"], ["demo"], ["info"], ["devices"], ["convert"], ["fetch"]):
        run = subprocess.run(
            [sys.executable, "-m", "whispyx", *command, "--help"], capture_output=True, timeout=60, cwd=ROOT,
            env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"},
        )  # fmt: skip
        assert run.returncode == 0 and run.stdout.isascii() and run.stdout.startswith(b"usage: whispyx")


def test_a_reader_that_goes_away_ends_the_command_quietly(folder: Path) -> None:
    with child("transcribe", "a.wav", text=" many words" * 20, count=20_000) as process:
        assert process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(60) == Status.BROKEN_PIPE == 141
    assert err == b""


def test_nothing_but_results_is_printed_on_a_pipe(folder: Path) -> None:
    out, err = child("transcribe", "a.wav", "b.wav", "-o", "out").communicate(timeout=60)
    assert (out, err) == (b"", b"")


def test_importing_the_package_loads_neither_numpy_nor_the_engine() -> None:
    script = (
        "import sys, whispyx; assert whispyx.__version__;"
        "heavy = [name for name in sys.modules if name.split('.')[0] in ('numpy', 'soundfile', 'cffi')"
        " or name.startswith('whispyx.') and name != 'whispyx._version']; print(heavy)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert run.stdout == "[]\n", run.stderr


def test_every_public_name_can_be_had_and_no_other() -> None:
    import whispyx

    for name in whispyx.__all__:
        assert getattr(whispyx, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Modell'"):
        whispyx.Modell  # noqa: B018


def test_a_progress_bar_shows_on_a_terminal_only(folder: Path) -> None:
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be made here: {error}")
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    script = CHILD.format(root=ROOT, text=ascii(" hi"), count=4)
    process = subprocess.Popen(
        [sys.executable, "-c", script, "transcribe", "a.wav"], stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    out, _ = process.communicate(timeout=60)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert out == b"hi\n" * 4
    assert b"a.wav:   0%|" in shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_standard_output_is_told(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        script = CHILD.format(root=ROOT, text=ascii(" hi"), count=1)
        run = subprocess.run(
            [sys.executable, "-c", script, "transcribe", "a.wav"], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert run.returncode == 1
    assert b"No space left on device" in run.stderr and b"Traceback" not in run.stderr


@pytest.mark.parametrize(("closed", "printed"), [(">&-", b""), ("2>&-", b"hi\n"), (">&- 2>&- <&-", b"")])
def test_closed_streams_do_no_harm(folder: Path, closed: str, printed: bytes) -> None:
    (folder / "child.py").write_text(CHILD.format(root=ROOT, text=ascii(" hi"), count=1))
    command = f'exec "$0" child.py transcribe a.wav {closed}'
    run = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, printed, b"")


def test_a_closed_standard_input_is_wrong_usage(folder: Path) -> None:
    (folder / "child.py").write_text(CHILD.format(root=ROOT, text=ascii(" hi"), count=1))
    command = 'exec "$0" child.py transcribe - <&-'
    run = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, timeout=60)
    assert run.returncode == 2 and b"standard input is not redirected" in run.stderr


def test_a_name_that_no_file_can_have_does_not_stop_the_others(install: Install, folder: Path, capsys: Capture) -> None:
    install(FileEngine(TWO[:1]))
    assert main(["transcribe", "x" * 5000, "", "a.wav"]) == Status.FAILED
    out, err = capsys.readouterr()
    assert out.endswith("Good morning.\n")
    assert "name too long" in err.splitlines()[0] and err.splitlines()[1] == "whispyx: '': no such file"


@pytest.mark.parametrize("target", ["a.wav/deep", "a.wav", "/dev/null/x", "gone"])
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(
    install: Install, folder: Path, capsys: Capture, target: str
) -> None:
    Path("gone").symlink_to("nowhere")
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "-o", target]) == Status.USAGE
    assert "-o must name a folder" in capsys.readouterr().err
    assert not engine.opened


def test_a_folder_without_the_right_to_write_is_refused_before_the_work(
    install: Install, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("shut").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "shut")  # root may write everywhere
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "-o", "shut/deep"]) == Status.FAILED
    assert "no results can be written" in capsys.readouterr().err
    assert not engine.opened


def test_a_result_never_replaces_its_own_sound_file(install: Install, folder: Path, capsys: Capture) -> None:
    Path("speech.txt").write_text("good")
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "speech.txt", "-f", "txt"]) == Status.USAGE
    assert "would be overwritten" in capsys.readouterr().err
    assert Path("speech.txt").read_text() == "good" and not engine.opened
    assert main(["transcribe", "speech.txt", "-f", "txt", "-o", "out"]) == Status.OK


def test_arguments_that_the_locale_did_not_decode_are_taken_for_utf_8(install: Install, folder: Path) -> None:
    # What LC_ALL=C makes of the bytes of an argument.
    prompt = "Zoë".encode().decode("ascii", "surrogateescape")
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "--prompt", prompt]) == Status.OK
    assert engine.asked[0].initial_prompt == "Zoë"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("ü.wav", "ü.wav"), ("\udcc3\udcbc.wav", "ü.wav"), ("\udcff.wav", r"\xff.wav"), ("\ud800", r"\ud800")],
)
def test_names_are_printed_as_utf_8_can_carry_them(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_format_that_cannot_be_written_does_not_cost_the_others(
    install: Install, folder: Path, capsys: Capture
) -> None:
    Path("a.srt").symlink_to("/nowhere/at/all")
    install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", "-f", "srt,txt"]) == Status.FAILED
    assert capsys.readouterr().err == "whispyx: a.wav: /nowhere/at/all: No such file or directory\n"
    assert Path("a.txt").read_text(encoding="utf-8") == "Good morning.\nGrüße, 日本.\n"


@pytest.mark.parametrize("flag", ["-o", "-f"])
def test_an_empty_folder_or_format_is_no_default(install: Install, folder: Path, capsys: Capture, flag: str) -> None:
    engine = install(FileEngine(TWO))
    assert main(["transcribe", "a.wav", flag, ""]) == Status.USAGE
    assert flag in capsys.readouterr().err
    assert not engine.opened
