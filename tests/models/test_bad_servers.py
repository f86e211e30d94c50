"""Whatever a server does, a download is the right file or a clear error, and nothing broken is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from whispyx.errors import ModelError
from whispyx.models import download as download_module
from whispyx.models.download import download

from .file_server import AN_HOUR_AGO, MODEL, Behaviour, proxying, serving

pytestmark = pytest.mark.usefixtures("empty_cache")


def fetch(url: str, folder: Path, path: str = "/repo/model.bin", most: int | None = None) -> Path:
    target = folder / "model.bin"
    folder.mkdir(exist_ok=True)
    download(url + path, target, magic=b"lmgg", most=most, what="download")
    return target


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(hub: Behaviour, out: Path, match: str, most: int | None = None) -> None:
    with serving(hub) as url, pytest.raises(ModelError, match=match) as caught:
        fetch(url, out, most=most)
    assert url in str(caught.value), "the message names the address"
    assert names(out) == []


# ------------------------------------------------------------------------------------------------ continued parts


def cut_short(hub: Behaviour, out: Path, url: str) -> None:
    """Leave a part of 400000 bytes."""
    hub.cuts = [100_000] * download_module.ATTEMPTS
    with pytest.raises(ModelError, match="after 4 attempts"):
        fetch(url, out)
    assert (out / ".model.bin.part").stat().st_size == 400_000


def test_the_time_of_the_last_change_is_as_good_as_a_tag(tmp_path: Path, hub: Behaviour) -> None:
    hub.etag, hub.modified, hub.cuts = None, AN_HOUR_AGO, [300_000]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert hub.log[-1][1] == "bytes=300000-"
    assert hub.conditions == [None, AN_HOUR_AGO]


@pytest.mark.parametrize("modified", ["Thu, 01 Jan 2099 00:00:00 GMT", "yesterday", ""])
def test_a_time_that_proves_nothing_is_not_used(tmp_path: Path, hub: Behaviour, modified: str) -> None:
    hub.etag, hub.modified, hub.cuts = None, modified, [300_000]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert hub.conditions == [None, None]


def test_a_weak_tag_is_not_used(tmp_path: Path, hub: Behaviour) -> None:
    hub.etag, hub.modified, hub.cuts = 'W/"v1"', AN_HOUR_AGO, [300_000]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert hub.conditions == [None, None]


NEW = b"lmgg" + bytes(255 - number % 256 for number in range(len(MODEL) - 4))


@pytest.mark.parametrize("size", [len(NEW), len(NEW) - 1000, 300_000])
def test_a_file_that_changed_between_two_parts_is_never_mixed(tmp_path: Path, hub: Behaviour, size: int) -> None:
    hub.keeps_if_range = False  # the server sends the part of the new file that it was asked for of the old one
    with serving(hub) as url:
        cut_short(hub, tmp_path / "out", url)
        hub.content, hub.etag = NEW[:size], '"v2"'
        assert fetch(url, tmp_path / "out").read_bytes() == hub.content
    assert names(tmp_path / "out") == ["model.bin"]


def test_a_file_that_changed_in_size_is_noticed_without_a_tag(tmp_path: Path, hub: Behaviour) -> None:
    hub.keeps_if_range = False
    with serving(hub) as url:
        cut_short(hub, tmp_path / "out", url)
        hub.content, hub.etag = NEW[:-7], None
        assert fetch(url, tmp_path / "out").read_bytes() == NEW[:-7]


def test_a_part_from_elsewhere_is_fetched_again(tmp_path: Path, hub: Behaviour) -> None:
    hub.cuts, hub.starts = [300_000], [0, 200_000]  # the second answer begins before what was asked for
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert [asked for _, asked in hub.log] == [None, "bytes=300000-", None]


def test_a_part_of_another_address_is_not_continued(tmp_path: Path, hub: Behaviour) -> None:
    with serving(hub) as url:
        cut_short(hub, tmp_path / "out", url)
        fetch(url, tmp_path / "out", "/elsewhere/model.bin")
    assert hub.log[-1] == ("/elsewhere/model.bin", None)


def test_a_part_that_was_whole_is_checked_and_taken_without_asking(tmp_path: Path, hub: Behaviour) -> None:
    out = tmp_path / "out"
    with serving(hub) as url:
        cut_short(hub, out, url)
        (out / ".model.bin.part").write_bytes(MODEL)  # the process ended between the last byte and the new name
        asked = len(hub.log)
        assert fetch(url, out).read_bytes() == MODEL
    assert len(hub.log) == asked
    assert names(out) == ["model.bin"]


def test_a_part_that_was_damaged_on_the_disk_is_fetched_again(tmp_path: Path, hub: Behaviour) -> None:
    hub.linked = {"X-Linked-Etag": f'"{hub.sha256}"'}
    out = tmp_path / "out"
    with serving(hub) as url:
        cut_short(hub, out, url)
        part = out / ".model.bin.part"
        part.write_bytes(b"lmgg" + bytes(part.stat().st_size - 4))
        assert fetch(url, out).read_bytes() == MODEL
    assert [asked for path, asked in hub.log[-4:] if path.startswith("/cdn")] == ["bytes=400000-", None]


@pytest.mark.parametrize("note", [b"", b"[]", b'{"url": 1}', b"\xff", b'{"url": "", "validator": 3, "size": "x"}'])
def test_a_note_that_cannot_be_read_is_not_believed(tmp_path: Path, hub: Behaviour, note: bytes) -> None:
    out = tmp_path / "out"
    with serving(hub) as url:
        cut_short(hub, out, url)
        (out / ".model.bin.part.json").write_bytes(note)
        assert fetch(url, out).read_bytes() == MODEL
    assert hub.log[-1][1] is None


# ------------------------------------------------------------------------------------------------ what is sent


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"<!DOCTYPE html><title>Please log in</title>" * 30_000, "a web page"),
        (b"\n\n<HTML>404</HTML>", "a web page"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><Error>AccessDenied</Error>", r"XML \(.*AccessDenied.*error message"),
        (b"Log in, please", r"plain text \('Log in, please'\)"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer"),
        (b"\x1f\x8b\x08", "a gzip archive"),
        (b'{"error": "Repository not found"}', "JSON"),
        (b"GGUF\x03\x00\x00\x00\x00", r"a file that begins with b'GGUF\\x03"),
        (b"", "an empty file"),
    ],
)
def test_what_is_no_model_is_called_by_its_name(tmp_path: Path, hub: Behaviour, content: bytes, told: str) -> None:
    hub.content = content
    refused(hub, tmp_path / "out", f"not a model file but {told}")
    assert len(hub.log) == 1


def test_a_wrong_file_is_not_fetched_to_its_end(tmp_path: Path, hub: Behaviour) -> None:
    hub.content, hub.pause_after = b"<html>" * 100_000, 1000  # there it would wait
    refused(hub, tmp_path / "out", "a web page")


def test_single_bytes_make_a_file_too(tmp_path: Path, hub: Behaviour) -> None:
    hub.content, hub.piece = MODEL[:3000], 1
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL[:3000]


def test_chunks_are_put_together_and_a_missing_one_is_noticed(tmp_path: Path, hub: Behaviour) -> None:
    hub.chunked, hub.piece, hub.cuts = True, 10_000, [300_000]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert [asked for _, asked in hub.log] == [None, "bytes=300000-"]


def test_compressed_data_is_unpacked(tmp_path: Path, hub: Behaviour) -> None:
    hub.encoding, hub.linked = "gzip", {"X-Linked-Etag": f'"{hub.sha256}"', "X-Linked-Size": str(len(MODEL))}
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL


def test_compressed_data_that_ends_early_is_fetched_from_its_beginning(tmp_path: Path, hub: Behaviour) -> None:
    hub.encoding, hub.cuts, hub.announce_size = "gzip", [500], False
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert [asked for _, asked in hub.log] == [None, None]


def test_damaged_compressed_data_is_an_error(tmp_path: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.models.file_server.gzip.compress", lambda body: b"\x1f\x8b\x08" + body)
    hub.encoding = "gzip"
    refused(hub, tmp_path / "out", "compressed data is damaged")


def test_compressed_data_does_not_fill_the_disk(tmp_path: Path, hub: Behaviour) -> None:
    hub.encoding, hub.content = "gzip", b"lmgg" + bytes(100_000_000)  # 100 kB as sent
    refused(hub, tmp_path / "out", "more than 2000000 bytes came", most=2_000_000)


def test_other_compressions_are_refused(tmp_path: Path, hub: Behaviour) -> None:
    hub.encoding = "br"
    refused(hub, tmp_path / "out", "compresses with 'br'")


# ------------------------------------------------------------------------------------------------ lengths


@pytest.mark.parametrize("announced", ["-5", "many", "1e6", "١٢"])
def test_a_length_that_is_none_is_ignored(tmp_path: Path, hub: Behaviour, announced: str) -> None:
    hub.announced = announced.encode().decode("latin-1")
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL


def test_a_length_that_is_too_large_is_an_error(tmp_path: Path, hub: Behaviour) -> None:
    hub.announced, hub.etag = str(len(MODEL) + 1), None
    refused(hub, tmp_path / "out", rf"ended after {len(MODEL)} of {len(MODEL) + 1} bytes \(after 4 attempts\)")


def test_a_length_that_is_too_small_is_an_error(tmp_path: Path, hub: Behaviour) -> None:
    hub.announced, hub.linked = str(len(MODEL) - 1), {"X-Linked-Size": str(len(MODEL))}
    hub.etag = None
    refused(hub, tmp_path / "out", f"ended after {len(MODEL) - 1} of {len(MODEL)}")


def test_more_than_was_stated_in_front_of_a_redirect_is_an_error(tmp_path: Path, hub: Behaviour) -> None:
    hub.linked = {"X-Linked-Size": "500000"}
    refused(hub, tmp_path / "out", "more than 500000 bytes came")


def test_a_size_that_no_such_model_has_is_refused_at_once(tmp_path: Path, hub: Behaviour) -> None:
    refused(hub, tmp_path / "out", f"{len(MODEL)} bytes are announced, but this model has at most 1000", most=1000)
    hub.announce_size = False
    refused(hub, tmp_path / "out", "more than 1000 bytes came", most=1000)


# ------------------------------------------------------------------------------------------------ no answer


def test_dropped_connections_are_made_again(tmp_path: Path, hub: Behaviour) -> None:
    hub.statuses = [0, 0, 0]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").is_file()


def test_a_server_that_only_drops_connections_is_given_up(tmp_path: Path, hub: Behaviour) -> None:
    hub.statuses = [0] * 9
    refused(hub, tmp_path / "out", "after 4 attempts")
    assert len(hub.log) == 4


@pytest.mark.parametrize(("status", "asked"), [(400, 1), (401, 1), (410, 1), (429, 4), (500, 4), (502, 4), (503, 4)])
def test_every_refusal_is_said_with_its_number(tmp_path: Path, hub: Behaviour, status: int, asked: int) -> None:
    hub.statuses = [status] * 9
    refused(hub, tmp_path / "out", f"the server answered {status} [A-Z]")
    assert len(hub.log) == asked


# ------------------------------------------------------------------------------------------------ redirects


@pytest.mark.parametrize("jump", ["/b", "b?c=d", "/moved/b"])
def test_redirects_are_followed(tmp_path: Path, hub: Behaviour, jump: str) -> None:
    hub.jumps = [jump, "/last"]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert [path for path, _ in hub.log] == ["/repo/model.bin", jump if jump[0] == "/" else "/repo/" + jump, "/last"]


def test_a_redirect_is_followed_with_the_range(tmp_path: Path, hub: Behaviour) -> None:
    hub.linked, hub.cuts = {}, [300_000]
    with serving(hub) as url:
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert hub.log[-1] == ("/cdn/repo/model.bin", "bytes=300000-")


@pytest.mark.parametrize("jump", ["file:///etc/hostname", "ftp://127.0.0.1/model.bin", "data:,lmgg", "gopher:x"])
def test_a_redirect_out_of_the_web_is_refused(tmp_path: Path, hub: Behaviour, jump: str) -> None:
    hub.jumps = [jump]
    refused(hub, tmp_path / "out", f"redirects to {jump}, which is no web address")


def test_a_circle_of_redirects_is_noticed(tmp_path: Path, hub: Behaviour) -> None:
    hub.jumps = ["/b", "/repo/model.bin"] * 9
    refused(hub, tmp_path / "out", "redirects in a circle, back to http")
    assert len(hub.log) == 2


def test_a_chain_of_redirects_ends(tmp_path: Path, hub: Behaviour) -> None:
    hub.jumps = [f"/{number}" for number in range(99)]
    refused(hub, tmp_path / "out", "redirects more than 10 times")


def test_a_redirect_to_nowhere_is_an_error(tmp_path: Path, hub: Behaviour) -> None:
    hub.jumps = [""]
    refused(hub, tmp_path / "out", "circle|302")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "model", ""])
def test_an_address_must_be_one_of_the_web(tmp_path: Path, url: str) -> None:
    with pytest.raises(ModelError, match="no web address"):
        fetch(url, tmp_path / "out", "")


@pytest.mark.parametrize("url", ["http://[x/y", "http://127.0.0.1:port/x", "http://127.0.0.1:99999/x", "http:///x"])
def test_an_address_that_is_wrong_is_an_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(ModelError):
        fetch(url, tmp_path / "out", "")
    assert names(tmp_path / "out") == []


# ------------------------------------------------------------------------------------------------ proxies


@pytest.fixture
def no_bypass(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_bypass")
@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY"])
def test_the_proxy_of_the_environment_is_asked(
    tmp_path: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    asked: list[str] = []
    with serving(hub) as url, proxying(asked) as proxy:
        monkeypatch.setenv(variable, proxy)
        far = url.replace("127.0.0.1", "hub.invalid")
        assert fetch(far, tmp_path / "out").read_bytes() == MODEL
    assert asked == [f"{far}/repo/model.bin"]


def test_names_that_need_no_proxy_are_asked_directly(
    tmp_path: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    with serving(hub) as url, proxying(asked) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert fetch(url, tmp_path / "out").read_bytes() == MODEL
    assert asked == []


@pytest.mark.usefixtures("no_bypass")
def test_a_proxy_that_refuses_is_named_without_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxying([], status=407) as proxy:
        place = proxy.removeprefix("http://")
        monkeypatch.setenv("http_proxy", f"http://me:secret@{place}")
        with pytest.raises(ModelError, match=rf"answered 407 .* \(through the proxy {place}\)") as caught:
            fetch("http://hub.invalid", tmp_path / "out")
    assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("no_bypass")
def test_a_proxy_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with pytest.raises(ModelError, match=r"refused \(through the proxy 127\.0\.0\.1:1\)"):
        fetch("https://hub.invalid", tmp_path / "out")
