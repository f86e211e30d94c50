"""The tool that sets up other recognisers, without installing any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import peers


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHISPYX_PEERS", str(tmp_path))
    return tmp_path


def stamp(where: Path, content: object) -> None:
    where.mkdir(exist_ok=True)
    (where / peers.STAMP).write_text(json.dumps(content))


def test_a_peer_that_was_not_set_up_has_no_interpreter(folder: Path) -> None:
    assert peers.python("pywhispercpp") is None


def test_a_peer_with_the_right_stamp_is_used_as_it_is(folder: Path) -> None:
    stamp(folder / "pywhispercpp", {"requirement": "pywhispercpp==1.5.1", "native": {}})
    assert peers.python("pywhispercpp") == folder / "pywhispercpp" / "bin" / "python"
    assert peers.install("pywhispercpp") == folder / "pywhispercpp" / "bin" / "python"


def test_another_version_does_not_count(folder: Path) -> None:
    stamp(folder / "pywhispercpp", {"requirement": "pywhispercpp==1.2.0", "native": {}})
    assert peers.python("pywhispercpp") is None


def test_the_wheel_does_not_pass_for_the_native_build(folder: Path) -> None:
    stamp(folder / "pywhispercpp-native", {"requirement": "pywhispercpp==1.5.1", "native": {}})
    assert peers.python("pywhispercpp", native=True) is None


def test_a_broken_stamp_does_not_count(folder: Path) -> None:
    (folder / "pywhispercpp").mkdir()
    (folder / "pywhispercpp" / peers.STAMP).write_text("{")
    assert peers.python("pywhispercpp") is None


def test_an_installation_that_breaks_off_leaves_no_stamp(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], variables: dict[str, str]) -> None:
        raise peers.PeerError("no network")

    monkeypatch.setattr(peers, "_run", fail)
    monkeypatch.setattr(peers.venv, "create", lambda where, **options: Path(where).mkdir())
    with pytest.raises(peers.PeerError, match="no network"):
        peers.install("pywhispercpp")
    assert peers.python("pywhispercpp") is None


def test_a_bare_peer_gets_its_list_and_nothing_that_it_asks_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(peers, "_run", lambda command, variables: commands.append(command))
    monkeypatch.setattr(peers.venv, "create", lambda where, **options: Path(where).mkdir())
    peers.install("openai-whisper")
    peer = peers.PEERS["openai-whisper"]
    assert commands[0][-len(peer.also) :] == list(peer.also)
    assert commands[1][-2:] == ["--no-deps", peer.requirement]
    assert not any("--only-binary" in command for command in commands), "no wheel of it is published"
    assert peers.python("openai-whisper") == folder / "openai-whisper" / "bin" / "python"


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        peers.main(["whisper-nope"])
    assert error.value.code == 2
    assert "pywhispercpp" in capsys.readouterr().err
