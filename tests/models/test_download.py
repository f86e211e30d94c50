"""A download is complete and checked, or absent; an interrupted one continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from email.message import Message
from io import BytesIO
from pathlib import Path

import pytest

from whispyx.errors import ModelError
from whispyx.models import download as download_module
from whispyx.models import request as request_module
from whispyx.models.download import download

from .file_server import MODEL, Behaviour, serving

pytestmark = pytest.mark.usefixtures("empty_cache")


def fetch(url: str, folder: Path, sha1: str | None = None) -> Path:
    target = folder / "model.bin"
    folder.mkdir(exist_ok=True)
    download(f"{url}/repo/model.bin", target, sha1=sha1, magic=b"lmgg", what="download")
    return target


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_with_its_checksum(tmp_path: Path, hub: Behaviour) -> None:
    seen: list[tuple[int, int | None, str]] = []
    with serving(hub) as url:
        sha256 = download(f"{url}/m", tmp_path / "m", what="word", progress=lambda *report: seen.append(report))
    assert (tmp_path / "m").read_bytes() == MODEL
    assert sha256 == hub.sha256
    assert seen[-1] == (len(MODEL), len(MODEL), "word")
    assert names(tmp_path) == ["m"]


def test_a_broken_connection_is_continued_where_it_ended(tmp_path: Path, hub: Behaviour) -> None:
    hub.cuts = [300_000, 200_000]
    with serving(hub) as url:
        target = fetch(url, tmp_path / "out")
    assert target.read_bytes() == MODEL
    assert [asked for _, asked in hub.log] == [None, "bytes=300000-", "bytes=500000-"]
    assert names(target.parent) == ["model.bin"]


def test_a_connection_that_never_recovers_leaves_a_part_that_the_next_call_continues(
    tmp_path: Path, hub: Behaviour
) -> None:
    hub.cuts = [100_000] * download_module.ATTEMPTS
    out = tmp_path / "out"
    with serving(hub) as url:
        with pytest.raises(ModelError, match="the connection ended after 400000 of"):
            fetch(url, out)
        assert names(out) == [".model.bin.part", ".model.bin.part.json"]
        target = fetch(url, out)
    assert target.read_bytes() == MODEL
    assert hub.log[-1][1] == "bytes=400000-"
    assert names(out) == ["model.bin"]


def test_another_file_on_the_server_is_fetched_from_its_beginning(tmp_path: Path, hub: Behaviour) -> None:
    hub.cuts = [100_000] * download_module.ATTEMPTS
    out = tmp_path / "out"
    with serving(hub) as url:
        with pytest.raises(ModelError):
            fetch(url, out)
        hub.content, hub.etag = b"lmgg" + b"new" * 1000, '"v2"'
        target = fetch(url, out)
    assert target.read_bytes() == hub.content


def test_without_an_entity_tag_nothing_is_kept(tmp_path: Path, hub: Behaviour) -> None:
    hub.etag, hub.cuts = None, [100_000] * download_module.ATTEMPTS
    with serving(hub) as url, pytest.raises(ModelError, match="the connection ended after 100000"):
        fetch(url, tmp_path / "out")
    assert names(tmp_path / "out") == []


def test_a_server_without_ranges_starts_again(tmp_path: Path, hub: Behaviour) -> None:
    hub.ranges, hub.cuts = False, [300_000]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL


def test_a_file_of_unknown_size_is_accepted(tmp_path: Path, hub: Behaviour) -> None:
    hub.announce_size = False
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL


def test_the_checksum_in_front_of_a_redirect_is_checked(tmp_path: Path, hub: Behaviour) -> None:
    hub.linked = {"X-Linked-Etag": f'"{hub.sha256}"', "X-Linked-Size": str(len(MODEL))}
    with serving(hub) as url:
        assert fetch(url, tmp_path / "good").read_bytes() == MODEL
        hub.linked["X-Linked-Etag"] = f'"{"0" * 64}"'
        with pytest.raises(ModelError, match="not the one the server states"):
            fetch(url, tmp_path / "bad")
    assert names(tmp_path / "bad") == []


def test_the_size_in_front_of_a_redirect_is_checked(tmp_path: Path, hub: Behaviour) -> None:
    hub.linked = {"X-Linked-Size": str(len(MODEL) + 1)}
    with serving(hub) as url, pytest.raises(ModelError, match=f"ended after {len(MODEL)} of {len(MODEL) + 1}"):
        fetch(url, tmp_path / "out")


def test_a_published_checksum_is_checked(tmp_path: Path, hub: Behaviour) -> None:
    with serving(hub) as url:
        assert fetch(url, tmp_path / "good", hub.sha1).is_file()
        with pytest.raises(ModelError, match="not the published one"):
            fetch(url, tmp_path / "bad", "0" * 40)
    assert names(tmp_path / "bad") == []


def test_a_page_instead_of_a_model_is_refused(tmp_path: Path, hub: Behaviour) -> None:
    hub.content = b"<html>Please log in</html>"
    with serving(hub) as url, pytest.raises(ModelError, match="not a model file"):
        fetch(url, tmp_path / "out")
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_is_final(tmp_path: Path, hub: Behaviour, status: int) -> None:
    hub.statuses = [status] * 9
    with serving(hub) as url, pytest.raises(ModelError, match=f"the server answered {status}"):
        fetch(url, tmp_path / "out")
    assert len(hub.log) == 1
    assert names(tmp_path / "out") == []


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path, hub: Behaviour) -> None:
    hub.statuses = [503, 429]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").is_file()
    assert len(hub.log) == 3


def test_a_part_that_does_not_fit_is_thrown_away(tmp_path: Path, hub: Behaviour) -> None:
    hub.cuts = [100_000] * download_module.ATTEMPTS
    out = tmp_path / "out"
    with serving(hub) as url:
        with pytest.raises(ModelError):
            fetch(url, out)
        hub.statuses = [416]
        assert fetch(url, out).read_bytes() == MODEL
    assert hub.log[-1][1] is None


def test_no_server_at_all_is_an_error_at_once(tmp_path: Path, hub: Behaviour) -> None:
    with serving(hub) as url:
        pass
    with pytest.raises(ModelError, match="refused"):
        fetch(url, tmp_path / "out")
    assert names(tmp_path / "out") == []


def test_a_silent_server_is_given_up(tmp_path: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "TIMEOUT_S", 0.3)
    hub.pause_after = 1000
    with serving(hub) as url, pytest.raises(ModelError, match="timed out"):
        fetch(url, tmp_path / "out")


def test_a_trickle_is_given_up(tmp_path: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "STALL_S", 0.0)
    monkeypatch.setattr(download_module, "STALL_BYTES", 1 << 40)
    with serving(hub) as url, pytest.raises(ModelError, match="stalled"):
        fetch(url, tmp_path / "out")


def test_a_full_disk_is_said_before_anything_is_written(
    tmp_path: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 10

    monkeypatch.setattr("whispyx.models.download.shutil.disk_usage", lambda _: Usage)
    with serving(hub) as url, pytest.raises(ModelError, match="0 MB are free"):
        fetch(url, tmp_path / "out")
    assert names(tmp_path / "out") == []


def test_a_redirect_from_https_to_http_is_refused() -> None:
    handler = request_module._Redirects()
    request = urllib.request.Request("https://hub.example/model.bin")
    with pytest.raises(request_module.DownloadError, match="from HTTPS"):
        handler.redirect_request(request, BytesIO(), 302, "Found", Message(), "http://cdn.example/model.bin")


CHILD = """
import sys
from pathlib import Path
from whispyx.models.download import download
download(sys.argv[1], Path(sys.argv[2]), magic=b"lmgg", what="download",
         progress=lambda done, total, what: print(done, flush=True))
"""


@pytest.mark.skipif(os.name != "posix", reason="the process is ended with a POSIX signal")
def test_a_process_that_is_killed_leaves_a_part_that_another_continues(tmp_path: Path, hub: Behaviour) -> None:
    out = tmp_path / "out"
    out.mkdir()
    hub.pause_after = 600_000
    with serving(hub) as url:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, f"{url}/repo/model.bin", str(out / "model.bin")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        deadline = time.monotonic() + 60
        part = out / ".model.bin.part"
        while not (part.exists() and part.stat().st_size >= 500_000) and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        child.stdout.close()
        assert names(out) == [".model.bin.part", ".model.bin.part.json"]
        hub.pause_after = None
        target = fetch(url, out)
    assert target.read_bytes() == MODEL
    assert hub.log[-1][1] is not None, "the second process asked for the rest only"
    assert names(out) == ["model.bin"]
