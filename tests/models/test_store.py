"""What is in the cache is told, verified and removed; nothing that happens leaves a broken model there."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from whispyx.errors import ModelError, ModelNotFoundError
from whispyx.models import MODELS, cached_path, resolve, store
from whispyx.models.cache import locked, recall

from .children import run, start
from .file_server import MODEL, Behaviour, serving

NAME = "distil-small.en"  # no checksum of it is published, so the test may serve anything under its name
pytestmark = pytest.mark.usefixtures("empty_cache")
posix_only = pytest.mark.skipif(os.name != "posix", reason="users, signals and limits are POSIX's")


@pytest.fixture
def served(hub: Behaviour, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    """The hub has MODEL under every name."""
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        yield hub


def change_a_byte(path: Path) -> None:
    """As a failing disk would: neither size nor time tell."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def by_hand(content: bytes = MODEL) -> Path:
    path = cached_path(NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# ------------------------------------------------------------------------------------------------ told


def test_an_empty_cache_has_no_model_and_is_not_made(empty_cache: Path) -> None:
    entries = store.entries()
    assert [entry.model.name for entry in entries] == list(MODELS)
    assert {(entry.state, entry.size) for entry in entries} == {("absent", 0)}
    assert store.others() == []
    assert not empty_cache.exists()


def test_a_fetched_model_is_verified_and_says_where_it_came_from(served: Behaviour) -> None:
    path = resolve(NAME)
    entry = store.entry(NAME)
    assert (entry.state, entry.path, entry.size) == ("verified", path, len(MODEL))
    assert entry.record is not None
    assert (entry.record.sha256, entry.record.source) == (hashlib.sha256(MODEL).hexdigest(), "model hub")


def test_a_file_that_was_touched_is_to_be_verified(served: Behaviour) -> None:
    path = resolve(NAME)
    os.utime(path)
    assert store.entry(NAME).state == "changed"
    assert store.verify(NAME).state == "verified"
    assert store.entry(NAME).state == "verified"


@pytest.mark.parametrize(("content", "problem"), [(b"", "it is empty"), (MODEL[:-1], "but 1024004 were recorded")])
def test_a_file_of_the_wrong_size_is_damaged(served: Behaviour, content: bytes, problem: str) -> None:
    resolve(NAME).write_bytes(content)
    entry = store.entry(NAME)
    assert entry.state == "damaged"
    assert entry.problem is not None and problem in entry.problem
    assert store.verify(NAME) == entry


def test_a_file_that_was_put_there_is_told_from_one_that_was_fetched() -> None:
    by_hand()
    assert store.entry(NAME).state == "unrecorded"
    assert store.verify(NAME).state == "unrecorded", "there is nothing to compare it with"


def test_a_file_that_was_put_there_is_compared_with_the_published_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    path = by_hand()
    monkeypatch.setitem(MODELS, NAME, replace(MODELS[NAME], sha1="0" * 40))
    assert store.verify(NAME).state == "unrecorded"
    monkeypatch.setitem(MODELS, NAME, replace(MODELS[NAME], sha1=hashlib.sha1(MODEL).hexdigest()))
    assert store.verify(NAME).state == "verified"
    record = recall(path)
    assert record is not None and record.sha256 == hashlib.sha256(MODEL).hexdigest()


def test_files_of_no_name_are_told(served: Behaviour) -> None:
    folder = resolve(NAME).parent
    (folder / "ggml-mine.bin").write_bytes(b"x")
    assert store.others() == [folder / "ggml-mine.bin"]


# ------------------------------------------------------------------------------------------------ verified


def test_verifying_reads_every_byte_and_says_how_far_it_is(served: Behaviour) -> None:
    resolve(NAME)
    seen: list[tuple[int, int | None, str]] = []
    assert store.verify(NAME, lambda *report: seen.append(report)).state == "verified"
    assert seen[-1] == (len(MODEL), len(MODEL), "verify")


def test_a_byte_that_changed_unnoticed_is_found_and_the_model_fetched_again(served: Behaviour) -> None:
    path = resolve(NAME)
    change_a_byte(path)
    assert store.entry(NAME).state == "verified", "nothing tells it from outside"
    assert resolve(NAME).read_bytes() != MODEL
    assert store.verify(NAME).state == "damaged"
    assert store.entry(NAME).state == "damaged", "what was found is remembered"
    assert resolve(NAME).read_bytes() == MODEL
    assert store.entry(NAME).state == "verified"


def test_a_damaged_file_that_was_put_right_by_hand_is_good_again(served: Behaviour) -> None:
    path = resolve(NAME)
    change_a_byte(path)
    store.verify(NAME)
    path.write_bytes(MODEL)
    assert store.verify(NAME).state == "verified"
    assert store.entry(NAME).state == "verified"


def test_a_damaged_model_that_no_source_has_any_more_is_called_damaged(
    served: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = resolve(NAME)
    path.write_bytes(b"lmgg")
    monkeypatch.setenv("WHISPYX_HUB", "http://127.0.0.1:1")
    with pytest.raises(ModelNotFoundError, match=r"is damaged at [^$]*refused"):
        resolve(NAME)
    assert path.read_bytes() == b"lmgg"


def test_a_file_that_changes_while_it_is_read_is_not_judged(served: Behaviour) -> None:
    path = resolve(NAME)
    with pytest.raises(ModelError, match="was changed while it was read"):
        store.verify(NAME, lambda *_: path.write_bytes(MODEL))


@pytest.mark.parametrize("work", [store.verify, store.remove])
def test_what_is_not_there_is_not_found(work: object) -> None:
    assert callable(work)
    with pytest.raises(ModelNotFoundError, match=r"is not in the cache: there is no .*ggml-tiny"):
        work("tiny.en")
    with pytest.raises(ModelNotFoundError, match="did you mean"):
        work("tiny-en")


# ------------------------------------------------------------------------------------------------ removed


def test_a_model_is_removed_with_its_record_and_what_downloads_left(served: Behaviour) -> None:
    path = resolve(NAME)
    (path.parent / ".ggml-distil-small.en.bin.part").write_bytes(b"x")
    work = path.parent / ".ggml-distil-small.en.bin.work"
    work.mkdir()
    (work / "wheel").write_bytes(b"x")
    assert len(store.remove(NAME)) == 4
    assert [left.name for left in path.parent.iterdir()] == [".locks"]
    assert store.entry(NAME).state == "absent"


def test_an_unfinished_model_is_told_and_can_be_removed(served: Behaviour) -> None:
    served.cuts = [100_000] * 4
    with pytest.raises(ModelNotFoundError):
        resolve(NAME)
    entry = store.entry(NAME)
    assert (entry.state, entry.size) == ("unfinished", 400_000)
    assert len(store.remove(NAME)) == 2
    assert store.entry(NAME).state == "absent"


def test_a_model_that_another_process_fetches_is_not_removed() -> None:
    path = by_hand()
    with locked(path), pytest.raises(ModelError, match="another process is fetching"):
        store.remove(NAME)
    assert path.exists()


# ------------------------------------------------------------------------------------------------ links


@pytest.fixture
def link(tmp_path: Path, served: Behaviour) -> tuple[Path, Path]:
    """A model that lies on another disk, with a link in the cache."""
    path, elsewhere = resolve(NAME), tmp_path / "large disk" / "model.bin"
    elsewhere.parent.mkdir()
    shutil.move(path, elsewhere)
    try:
        path.symlink_to(elsewhere)
    except OSError as error:
        pytest.skip(f"no links here: {error}")
    return path, elsewhere


def test_a_link_is_as_good_as_a_file(link: tuple[Path, Path], served: Behaviour) -> None:
    path, _ = link
    assert resolve(NAME) == path
    assert store.verify(NAME).state == store.entry(NAME).state == "verified"
    assert path.is_symlink()
    assert len(served.log) == 1


def test_removing_a_link_leaves_what_it_leads_to(link: tuple[Path, Path]) -> None:
    path, elsewhere = link
    store.remove(NAME)
    assert not os.path.lexists(path)
    assert elsewhere.read_bytes() == MODEL


def test_a_damaged_file_behind_a_link_is_replaced_in_the_cache_only(link: tuple[Path, Path]) -> None:
    path, elsewhere = link
    elsewhere.write_bytes(b"something else")
    assert resolve(NAME).read_bytes() == MODEL
    assert not path.is_symlink()
    assert elsewhere.read_bytes() == b"something else"


def test_a_link_to_nothing_is_no_model(link: tuple[Path, Path]) -> None:
    path, elsewhere = link
    elsewhere.unlink()
    assert store.entry(NAME).state == "absent"
    assert resolve(NAME).read_bytes() == MODEL
    assert not path.is_symlink()


# ------------------------------------------------------------------------------------------------ interrupted

GET = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been inherited as ignored
from whispyx.cli import main
sys.exit(main(["models", "get", sys.argv[1]]))
"""


@posix_only
def test_ctrl_c_leaves_a_part_that_the_next_call_continues(served: Behaviour, empty_cache: Path) -> None:
    served.pause_after = 600_000
    child = start(GET, NAME)
    part = empty_cache / "models" / ".ggml-distil-small.en.bin.part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size >= 500_000) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "whispyx: interrupted\n"
    assert child.returncode == 130
    assert store.entry(NAME).state == "unfinished"
    served.pause_after = None
    assert resolve(NAME).read_bytes() == MODEL
    assert served.log[-1][1] is not None, "only the rest was asked for"


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
from whispyx.cli import main
sys.exit(main(["models", "get", sys.argv[1]]))
"""


@posix_only
def test_a_file_that_cannot_be_written_to_its_end_is_no_model(served: Behaviour) -> None:
    status, output = run(FULL, NAME)
    assert status == 3
    assert "cannot be written: File too large" in output
    assert "Traceback" not in output
    assert store.entry(NAME).state == "unfinished"
    assert resolve(NAME).read_bytes() == MODEL
    assert served.log[-1][1] == "bytes=300000-"


# All that is imported later must be here: the other user may not be able to read it.
NOBODY = """
import encodings.idna, os, sys
import filelock, platformdirs
from whispyx.cli import main
import whispyx.cli.models, whispyx.cli.parser, whispyx.models.sources
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
sys.exit(main(["models", *sys.argv[1:]]))
"""


@pytest.fixture
def foreign_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder that everybody can read and only this user can write."""
    if os.name != "posix":
        pytest.skip("users are POSIX's")
    top = Path(tempfile.mkdtemp())
    cache = top / "cache"
    (cache / "models").mkdir(parents=True)
    monkeypatch.setenv("WHISPYX_CACHE", str(cache))

    def protect(mode: int) -> None:
        for folder in (top, cache, *(path for path in cache.rglob("*") if path.is_dir())):
            folder.chmod(mode)

    protect(0o755 if os.geteuid() == 0 else 0o555)
    try:
        yield cache
    finally:
        protect(0o755)
        shutil.rmtree(top)


def test_a_cache_that_cannot_be_written_says_so(foreign_cache: Path, served: Behaviour) -> None:
    status, output = run(NOBODY, "get", NAME)
    assert (status, served.log) == (3, [])
    assert f"the cache folder {foreign_cache / 'models'} cannot be used" in output
    assert "Traceback" not in output


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can fill it and then be somebody else")
def test_a_model_in_a_cache_that_cannot_be_written_is_used_verified_and_not_removed(
    foreign_cache: Path, served: Behaviour
) -> None:
    path = resolve(NAME)
    os.utime(path)
    assert run(NOBODY, "get", NAME) == (0, f"{path}\n")
    assert run(NOBODY, "verify") == (0, f"{NAME}: verified\n")
    status, output = run(NOBODY, "remove", NAME)
    assert status == 3 and "Traceback" not in output
    assert path.read_bytes() == MODEL
    change_a_byte(path)
    status, output = run(NOBODY, "verify", NAME)
    assert status == 3 and "damaged" in output


def test_the_store_needs_no_network(served: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(NAME)
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    asked = len(served.log)
    assert resolve(NAME) == store.entry(NAME).path
    assert store.verify(NAME).state == "verified"
    store.remove(NAME)
    with pytest.raises(ModelNotFoundError, match="WHISPYX_OFFLINE forbids the network"):
        resolve(NAME)
    assert len(served.log) == asked
