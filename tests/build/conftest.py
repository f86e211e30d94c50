"""A ggml source distribution in miniature, so that fetching and unpacking can be tested without network or compiler."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CMAKE = """\
project("ggml" C CXX ASM)
set(GGML_VERSION_MAJOR {major})
set(GGML_VERSION_MINOR {minor})
set(GGML_VERSION_PATCH {patch})
"""
HEADER = """\
    #define GGML_BACKEND_API_VERSION {api}
    struct thing;
"""


def tree_files(version: str = "0.20.2", api: int = 2) -> dict[str, str]:
    """The files of a small ggml tree: what the build looks at, and one it does not keep."""
    major, minor, patch = version.split(".")
    return {
        "CMakeLists.txt": CMAKE.format(major=major, minor=minor, patch=patch),
        "LICENSE": "terms\n",
        "include/ggml.h": "int ggml(void);\n",
        "src/ggml-backend-impl.h": HEADER.format(api=api),
        "src/ggml.c": "one\ntwo\nthree\n",
        "examples/large.c": "not needed\n",
    }


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def write_sdist(path: Path, files: dict[str, str], *, extra: dict[str, str] | None = None) -> str:
    """Write `files` as the ggml folder of a source distribution; return its SHA-256. `extra` names are full."""
    top = "libggml_python-0.20.2.post1"
    members = {f"{top}/ggml/{name}": text for name, text in files.items()}
    members[f"{top}/PKG-INFO"] = "Metadata-Version: 2.1\nName: libggml-python\nVersion: 0.20.2.post1\n"
    members[f"{top}/pyproject.toml"] = '[build-system]\nrequires = []\nbuild-backend = "scikit_build_core.build"\n'
    members.update(extra or {})
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()


PIN = """\
[package]
name = "libggml-python"
version = "0.20.2.post1"
sha256 = "{sha256}"
folder = "ggml"
build-backend = "scikit_build_core.build"

[ggml]
version = "0.20.2"
api-version = 2
licence = "MIT"
keep = ["CMakeLists.txt", "LICENSE", "cmake", "ggml.pc.in", "include", "src"]
"""


@dataclass
class Vendor:
    """A vendor/ folder with a pin, and a folder from which pip takes the archive."""

    folder: Path
    wheelhouse: Path

    @property
    def archive(self) -> Path:
        return self.wheelhouse / "libggml_python-0.20.2.post1.tar.gz"

    @property
    def tree(self) -> Path:
        return self.folder / "ggml"

    def offer(self, files: dict[str, str], *, extra: dict[str, str] | None = None, pin: bool = True) -> None:
        """Put an archive of `files` where pip finds it, and pin its digest."""
        digest = write_sdist(self.archive, files, extra=extra)
        if pin:
            (self.folder / "ggml.toml").write_text(PIN.format(sha256=digest), encoding="utf-8")

    def patch(self, name: str, text: str) -> None:
        (self.folder / "patches" / name).write_text(text, encoding="utf-8")

    def leftovers(self) -> list[str]:
        """What lies beside the pin, the patches and the tree."""
        return sorted(path.name for path in self.folder.iterdir() if path.name not in ("ggml.toml", "patches", "ggml"))


@pytest.fixture
def vendor_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vendor:
    """An empty vendor folder whose archive pip takes from a local folder, never from a network."""
    made = Vendor(tmp_path / "vendor", tmp_path / "wheelhouse")
    (made.folder / "patches").mkdir(parents=True)
    made.wheelhouse.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheelhouse))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return made


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a build starts from: no ggml source, nothing built."""
    target = tmp_path / "checkout"
    target.mkdir()
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, target)
    clean = shutil.ignore_patterns("__pycache__", "*.so", "_native")
    for name in ("tools", "whispyx", "backends"):
        shutil.copytree(ROOT / name, target / name, ignore=clean)
    shutil.copytree(ROOT / "vendor", target / "vendor", ignore=shutil.ignore_patterns("ggml", ".ggml-*"))
    return target


Setup = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def setup(checkout: Path) -> Setup:
    """Run setup.py of the copy with some environment variables changed (None removes one)."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed here, so setup.py cannot run")

    def run(*arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("WHISPYX_", "PIP_"))}
        env.update({"PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"})
        for name, value in changes.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value
        return subprocess.run(
            [sys.executable, "setup.py", "-q", *arguments],
            cwd=checkout,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
