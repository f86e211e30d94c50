"""`whispyx models` list, get, verify, remove and path: what they print, as text and as JSON, and their exit codes."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whispyx.cli import main
from whispyx.models import MODELS

from .file_server import MODEL, Behaviour, serving

Capture = pytest.CaptureFixture[str]
NAME = "distil-small.en"


@pytest.fixture(autouse=True)
def served(hub: Behaviour, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    """The hub has MODEL under every name."""
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        yield hub


@pytest.fixture
def path(empty_cache: Path) -> Path:
    return empty_cache / "models" / f"ggml-{NAME}.bin"


@pytest.fixture
def fetched(path: Path, capsys: Capture) -> Path:
    assert main(["models", "get", NAME]) == 0
    capsys.readouterr()
    return path


def parsed(capsys: Capture) -> Any:
    return json.loads(capsys.readouterr().out)


def damage(path: Path) -> None:
    before = path.stat()
    path.write_bytes(MODEL[:-1] + b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_list_tells_names_sizes_states_licences_and_sources(fetched: Path, capsys: Capture) -> None:
    assert main(["models", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split("  ") for line in lines]
    table = {row[0].split(",")[0]: [cell.strip() for cell in row if cell] for row in rows[1 : len(MODELS) + 1]}
    assert lines[0].split("  ")[0] == "model" and list(table) == list(MODELS)
    assert table[NAME] == [NAME, "1 MB", "verified", "MIT", "hub"]
    assert table["base"] == ["base", "148 MB", "-", "MIT", "packages, hub"]
    assert table["large-v3"][0] == "large-v3, large"
    assert lines[-1].startswith(f"1 MB in {fetched.parent};")


def test_list_of_the_cache_has_nothing_else(fetched: Path, capsys: Capture) -> None:
    (fetched.parent / "mine.bin").write_bytes(b"x")
    assert main(["models", "list", "--cached"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:2]] == [NAME]
    assert lines[2] == f"{fetched.parent / 'mine.bin'}: a file of no model that has a name"


def test_list_as_json_has_everything(fetched: Path, capsys: Capture, hub: Behaviour) -> None:
    assert main(["models", "list", "--json"]) == 0
    report = parsed(capsys)
    assert report["folder"] == str(fetched.parent) and report["others"] == []
    models = {row["name"]: row for row in report["models"]}
    assert list(models) == list(MODELS)
    assert models[NAME] == {
        "name": NAME,
        "aliases": [],
        "megabytes": 336,
        "licence": "MIT",
        "sources": [{"kind": "hub", "label": "model hub"}],
        "path": str(fetched),
        "state": "verified",
        "problem": None,
        "bytes": len(MODEL),
        "sha256": hub.sha256,
        "source": "model hub",
    }
    assert [source["kind"] for source in models["tiny.en"]["sources"]] == ["installed", "index", "hub"]
    assert (models["large-v3"]["aliases"], models["base"]["state"]) == (["large"], "absent")


def test_get_prints_paths_and_goes_on_after_a_failure(path: Path, capsys: Capture) -> None:
    assert main(["models", "get", "tyni.en", NAME, "small"]) == 3
    out, err = capsys.readouterr()
    assert out == f"{path}\n"
    assert "did you mean tiny.en" in err and "not the published one" in err
    assert path.read_bytes() == MODEL
    assert list(path.parent.glob("*small.bin*")) == []


def test_get_as_json_tells_what_failed(path: Path, capsys: Capture) -> None:
    assert main(["models", "get", "--json", "small", NAME]) == 3
    failed, made = parsed(capsys)["models"]
    assert failed["name"] == "small" and "not the published one" in failed["error"]
    assert (made["path"], made["state"], made["bytes"]) == (str(path), "verified", len(MODEL))


def test_get_takes_names_and_aliases_but_no_paths(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.bin").write_bytes(MODEL)
    assert main(["models", "get", str(tmp_path / "a.bin")]) == 3
    assert capsys.readouterr().out == ""
    assert main(["models", "path", "turbo"]) == 3
    assert "large-v3-turbo is not in the cache" in capsys.readouterr().err


def test_get_fetches_once(fetched: Path, capsys: Capture, hub: Behaviour) -> None:
    assert main(["models", "get", NAME, NAME]) == 0
    assert capsys.readouterr() == (f"{fetched}\n", "")
    assert len(hub.log) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals(path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["models", "get", NAME]) == 0
    assert main(["models", "verify", NAME]) == 0
    assert capsys.readouterr().err == ""
    assert main(["models", "remove", NAME]) == 0
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(["models", "get", NAME]) == 0
    fetching, _, _ = terminal.getvalue(), terminal.seek(0), terminal.truncate()
    assert main(["models", "verify", NAME]) == 0
    for shown in (fetching, terminal.getvalue()):
        assert f"{NAME}:" in shown and "B/s" in shown


def test_offline_nothing_is_fetched(capsys: Capture, hub: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    assert main(["models", "get", NAME]) == 3
    assert "WHISPYX_OFFLINE forbids the network" in capsys.readouterr().err
    assert main(["models", "list", "--cached"]) == main(["models", "verify"]) == main(["models", "path"]) == 0
    assert hub.log == []


def test_verify_finds_damage_and_get_repairs_it(fetched: Path, capsys: Capture) -> None:
    assert main(["models", "verify"]) == 0
    assert capsys.readouterr().out == f"{NAME}: verified\n"
    damage(fetched)
    assert main(["models", "verify"]) == 3
    told = capsys.readouterr().out
    assert told.startswith(f"{NAME}: damaged: its checksum is not the one that was recorded")
    assert f"'whispyx models get {NAME}'" in told
    assert main(["models", "list", "--cached"]) == 0
    assert "damaged" in capsys.readouterr().out
    assert main(["models", "get", NAME]) == 0
    assert fetched.read_bytes() == MODEL
    assert capsys.readouterr().err.count("it is fetched again") == 1
    assert main(["models", "verify", NAME, "--json"]) == 0
    assert [row["state"] for row in parsed(capsys)["models"]] == ["verified"]


def test_verify_of_nothing_is_fine_and_of_what_is_not_there_is_not(capsys: Capture, path: Path) -> None:
    assert main(["models", "verify"]) == 0
    assert capsys.readouterr() == ("", f"no model is in {path.parent}\n")
    assert main(["models", "verify", "base"]) == 3
    assert "base is not in the cache" in capsys.readouterr().err


def test_remove_prints_what_is_gone(fetched: Path, capsys: Capture) -> None:
    assert main(["models", "remove", NAME, "base"]) == 3
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(fetched), f"{fetched}.json"]
    assert "base is not in the cache" in err
    assert not fetched.exists()


def test_remove_wants_names_or_all(fetched: Path, capsys: Capture) -> None:
    other = fetched.parent / "mine.bin"
    other.write_bytes(b"x")
    assert main(["models", "remove"]) == main(["models", "remove", NAME, "--all"]) == 2
    assert fetched.exists()
    assert main(["models", "remove", "--all", "--json"]) == 0
    assert parsed(capsys)["models"] == [{"name": NAME, "removed": [str(fetched), f"{fetched}.json"]}]
    assert not fetched.exists() and other.exists(), "what has no name is the user's"


def test_path_tells_where_and_never_fetches(fetched: Path, capsys: Capture, hub: Behaviour) -> None:
    assert main(["models", "path"]) == 0
    assert capsys.readouterr().out == f"{fetched.parent}\n"
    assert main(["models", "path", NAME, "base"]) == 3
    out, err = capsys.readouterr()
    assert out == f"{fetched}\n"
    assert "'whispyx models get base' fetches it" in err
    assert main(["models", "path", NAME, "--json"]) == 0
    assert parsed(capsys)["models"][0]["path"] == str(fetched)
    assert len(hub.log) == 1


@pytest.mark.parametrize("words", [[], ["lsit"], ["get"], ["list", "base"]])
def test_wrong_words_are_wrong_usage(words: list[str], capsys: Capture) -> None:
    assert main(["models", *words]) == 2
