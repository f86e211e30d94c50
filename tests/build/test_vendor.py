"""The ggml source is fetched by name, verified, unpacked and patched, or nothing is there and the error says why."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

import pytest

from tools.build import ROOT, BuildError, vendor
from tools.build.config import BuildConfig

from .conftest import Vendor, tree_files, write_tree

CHANGE_TWO = "--- a/src/ggml.c\n+++ b/src/ggml.c\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"
CHANGE_THREE = "Why: a second one.\n--- a/src/ggml.c\n+++ b/src/ggml.c\n@@ -1,3 +1,3 @@\n one\n TWO\n-three\n+THREE\n"

has_pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")


def unpack(made: Vendor) -> Path:
    """Unpack the offered archive without pip."""
    pin = vendor.read_pin(made.folder / "ggml.toml")
    patches = sorted((made.folder / "patches").glob("*.patch"))
    vendor.unpack(made.archive, pin, patches, made.tree, "stamp")
    return made.tree


def test_the_pin_of_this_repository_is_the_agreed_one() -> None:
    pin = vendor.read_pin()
    assert pin.requirement == "libggml-python==0.20.2.post1"
    assert pin.sha256 == "e47ff53506342959ffb3ce15380b82828fea10ec5f208f9ef6915895f1a7a176"
    assert (pin.ggml_version, pin.api_version) == ("0.20.2", 2)


@has_pip
def test_the_source_is_fetched_by_name_verified_and_pruned(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    tree = vendor.ensure(vendor=vendor_folder.folder)
    kept = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert kept == (set(tree_files()) - {"examples/large.c"}) | {vendor.STAMP}
    assert vendor_folder.leftovers() == []


@has_pip
def test_what_is_there_is_not_fetched_again(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    tree = vendor.ensure(vendor=vendor_folder.folder)
    (tree / "include" / "ggml.h").write_text("seen\n", encoding="utf-8")
    vendor_folder.archive.unlink()
    assert vendor.ensure(vendor=vendor_folder.folder, offline=True) == tree
    assert (tree / "include" / "ggml.h").read_text() == "seen\n"


@has_pip
def test_a_new_pin_or_patch_unpacks_again(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    vendor.ensure(vendor=vendor_folder.folder)
    vendor_folder.patch("0001-two.patch", CHANGE_TWO)
    tree = vendor.ensure(vendor=vendor_folder.folder)
    assert (tree / "src" / "ggml.c").read_text() == "one\nTWO\nthree\n"

    vendor_folder.offer({**tree_files(), "src/ggml.c": "one\ntwo\nthree\nfour\n"})
    with pytest.raises(BuildError, match=r"0001-two\.patch does not apply") as info:
        vendor_folder.patch("0001-two.patch", CHANGE_TWO.replace("three", "drei"))
        vendor.ensure(vendor=vendor_folder.folder)
    assert "line 3" in str(info.value)
    assert (tree / "src" / "ggml.c").read_text() == "one\nTWO\nthree\n", "the tree of before is still whole"

    vendor_folder.patch("0001-two.patch", CHANGE_TWO)
    vendor.ensure(vendor=vendor_folder.folder)
    assert (tree / "src" / "ggml.c").read_text() == "one\nTWO\nthree\nfour\n"
    assert vendor_folder.leftovers() == []


@has_pip
def test_no_code_of_the_archive_runs(vendor_folder: Vendor) -> None:
    marker = vendor_folder.wheelhouse / "ran"
    top = "libggml_python-0.20.2.post1"
    write = f"open({str(marker)!r}, 'w').close()\n"
    vendor_folder.offer(tree_files(), extra={f"{top}/setup.py": write, f"{top}/scikit_build_core/build.py": write})
    vendor.ensure(vendor=vendor_folder.folder)
    assert not marker.exists()


@has_pip
def test_a_wrong_hash_names_both_digests_and_leaves_nothing(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    pinned = vendor.read_pin(vendor_folder.folder / "ggml.toml").sha256
    vendor_folder.offer({**tree_files(), "src/ggml.c": "something else\n"}, pin=False)
    got = hashlib.sha256(vendor_folder.archive.read_bytes()).hexdigest()
    with pytest.raises(BuildError) as info:
        vendor.ensure(vendor=vendor_folder.folder)
    assert pinned in str(info.value) and got in str(info.value)
    assert not vendor_folder.tree.exists() and vendor_folder.leftovers() == []


@has_pip
def test_no_network_says_three_ways_out(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    vendor_folder.archive.unlink()
    with pytest.raises(BuildError) as info:
        vendor.ensure(vendor=vendor_folder.folder)
    for way in ("PIP_FIND_LINKS", "WHISPYX_GGML_SOURCE", "source distribution"):
        assert way in str(info.value)
    assert not vendor_folder.tree.exists() and vendor_folder.leftovers() == []


def test_a_python_without_pip_is_told_how_to_get_it(vendor_folder: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor_folder.offer(tree_files())
    no_pip = vendor_folder.wheelhouse / "no-pip"
    (no_pip / "pip").mkdir(parents=True)
    (no_pip / "pip" / "__init__.py").write_text("raise ImportError('No module named pip')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(no_pip))
    with pytest.raises(BuildError, match="ensurepip"):
        vendor.ensure(vendor=vendor_folder.folder)


def test_offline_forbids_to_fetch(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    with pytest.raises(BuildError, match="WHISPYX_BUILD_OFFLINE=1 forbids"):
        vendor.ensure(vendor=vendor_folder.folder, offline=True)


def test_patches_apply_in_the_order_of_their_names(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    vendor_folder.patch("0002-three.patch", CHANGE_THREE)
    vendor_folder.patch("0001-two.patch", CHANGE_TWO)
    assert (unpack(vendor_folder) / "src" / "ggml.c").read_text() == "one\nTWO\nTHREE\n"


def test_only_files_that_a_new_patch_changes_look_new(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    tree = unpack(vendor_folder)
    for path in tree.rglob("*.[ch]"):
        os.utime(path, (1_000_000, 1_000_000))
    vendor_folder.patch("0001-two.patch", CHANGE_TWO)
    unpack(vendor_folder)
    assert (tree / "include" / "ggml.h").stat().st_mtime == 1_000_000
    assert (tree / "src" / "ggml.c").stat().st_mtime > 1_000_000


def test_a_patch_that_does_not_apply_leaves_no_half_tree(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    vendor_folder.patch("0001-two.patch", CHANGE_TWO)
    vendor_folder.patch("0002-again.patch", CHANGE_TWO)
    with pytest.raises(BuildError, match=r"0002-again\.patch does not apply to ggml 0\.20\.2: .* line 2"):
        unpack(vendor_folder)
    assert not vendor_folder.tree.exists() and vendor_folder.leftovers() == []


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (tree_files("0.20.1"), "holds ggml 0.20.1, but this whispyx is made for ggml 0.20.2"),
        (tree_files(api=3), "plugin interface .* 3, but 2 is expected"),
        ({name: text for name, text in tree_files().items() if name != "CMakeLists.txt"}, "CMakeLists.txt is missing"),
    ],
)
def test_an_archive_with_another_ggml_is_refused(vendor_folder: Vendor, files: dict[str, str], says: str) -> None:
    vendor_folder.offer(files)
    with pytest.raises(BuildError, match=says):
        unpack(vendor_folder)
    assert not vendor_folder.tree.exists() and vendor_folder.leftovers() == []


def test_an_archive_cannot_write_outside_of_its_folder(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files(), extra={"libggml_python-0.20.2.post1/ggml/src/../../../../escaped": "x"})
    with pytest.raises(BuildError, match="unsafe path"):
        unpack(vendor_folder)
    assert not list(vendor_folder.folder.parent.rglob("escaped"))
    assert not vendor_folder.tree.exists() and vendor_folder.leftovers() == []


def test_a_truncated_archive_is_refused(vendor_folder: Vendor) -> None:
    vendor_folder.offer({**tree_files(), "src/big.c": "".join(f"{number * 7919}\n" for number in range(50_000))})
    half = vendor_folder.archive.read_bytes()
    vendor_folder.archive.write_bytes(half[: len(half) // 2])
    pin_file = vendor_folder.folder / "ggml.toml"
    digest = hashlib.sha256(vendor_folder.archive.read_bytes()).hexdigest()
    pin_file.write_text(pin_file.read_text().replace(hashlib.sha256(half).hexdigest(), digest), encoding="utf-8")
    with pytest.raises(BuildError, match="cannot be unpacked"):
        unpack(vendor_folder)
    assert not vendor_folder.tree.exists() and vendor_folder.leftovers() == []


def test_a_folder_that_cannot_be_written_is_named(vendor_folder: Vendor) -> None:
    vendor_folder.offer(tree_files())
    pin = vendor.read_pin(vendor_folder.folder / "ggml.toml")
    in_the_way = vendor_folder.folder / "file"
    in_the_way.touch()  # a file where a folder should be fails for every user, root too
    with pytest.raises(BuildError, match="make it writable, or copy the tree"):
        vendor.unpack(vendor_folder.archive, pin, [], in_the_way / "ggml", "stamp")


def test_a_tree_of_the_users_own_is_used_as_it_is(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "mine", tree_files())
    assert vendor.source_tree(BuildConfig(ggml_source=tree)) == tree
    assert not (tree / vendor.STAMP).exists()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "WHISPYX_GGML_SOURCE is not a ggml source tree"),
        ({"CMakeLists.txt": "project(other)\n"}, "WHISPYX_GGML_SOURCE is not a ggml source tree"),
        (tree_files("0.26.0"), "WHISPYX_GGML_SOURCE holds ggml 0.26.0"),
    ],
)
def test_a_folder_that_is_not_the_right_ggml_is_refused(tmp_path: Path, files: dict[str, str], says: str) -> None:
    tree = write_tree(tmp_path / "mine", files)
    with pytest.raises(BuildError, match=says):
        vendor.source_tree(BuildConfig(ggml_source=tree))


def test_the_unpacked_tree_of_this_checkout_fits_its_pin() -> None:
    tree = ROOT / "vendor" / "ggml"
    if not (tree / vendor.STAMP).exists():
        pytest.skip("vendor/ggml is not unpacked here (built from another tree)")
    vendor.check_tree(tree, vendor.read_pin(), "vendor/ggml")
