"""Short cuts at the start of a process find what the long way finds."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import platformdirs
import pytest

from whispyx import _engine
from whispyx.plugins import discovery, entries, manifest, preload

GROUP = "whispyx.trial"


def install(folder: Path, ending: str, group: str) -> None:
    info = folder / f"brought-1.0{ending}"
    info.mkdir(parents=True)
    name = "METADATA" if ending == ".dist-info" else "PKG-INFO"
    (info / name).write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nb = brought:plugin\na = brought:other\n")


@pytest.mark.parametrize("ending", [".dist-info", ".egg-info", ".DIST-INFO"])
def test_entry_points_of_a_package_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    install(tmp_path, ending, GROUP)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = entries.of_group(GROUP)
    assert [entry.name for entry in found] == ["a", "b"]
    assert set(found) == set(metadata.entry_points(group=GROUP))


def test_entry_points_in_an_archive_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "tree", ".dist-info", GROUP)
    with zipfile.ZipFile(tmp_path / "brought.zip", "w") as archive:
        for path in (tmp_path / "tree").rglob("*"):
            archive.write(path, path.relative_to(tmp_path / "tree"))
    monkeypatch.syspath_prepend(str(tmp_path / "brought.zip"))
    assert [entry.name for entry in entries.of_group(GROUP)] == ["a", "b"]


def test_a_finder_of_packages_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(*_: object) -> None:
            return None

        @staticmethod
        def find_distributions(_: object) -> list[metadata.Distribution]:
            class Only(metadata.Distribution):
                def read_text(self, filename: str) -> str | None:
                    return {"METADATA": "Name: x\n", "entry_points.txt": f"[{GROUP}]\nx = x:y\n"}.get(filename)

                def locate_file(self, path: object) -> Path:
                    return Path(str(path))

            return [Only()]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert [entry.name for entry in entries.of_group(GROUP)] == ["x"]


def test_other_packages_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, ".dist-info", "another.group")
    (tmp_path / "a_file-1.0.egg-info").write_text("Name: a_file\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "nowhere"), *sys.path])
    assert entries.of_group(GROUP) == []


def test_the_users_folder_is_where_platformdirs_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv(discovery.HOME_VARIABLE, raising=False)
    assert discovery.user_folder().parent == platformdirs.user_data_path("whispyx", appauthor=False) / "plugins"


def test_a_manifest_that_asks_for_libraries_is_read() -> None:
    root = manifest.kit_root()
    for name in manifest.names(root):
        if manifest.read(manifest.path_of(name, root)).run.preload:
            assert not preload._surely_nothing(name)
    assert preload._surely_nothing("cpu")
    assert not preload._surely_nothing("unheard_of")


def test_modules_are_imported_ahead_and_one_that_fails_is_not_told_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whispyx_trial_good.py").write_text("ready = True\n")
    (tmp_path / "whispyx_trial_bad.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with _engine._importing(["whispyx_trial_bad", "whispyx_trial_good", "sys"]):
        pass
    assert sys.modules.pop("whispyx_trial_good").ready
    assert "whispyx_trial_bad" not in sys.modules
