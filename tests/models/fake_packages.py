"""Wheels and source distributions made on the spot, for pip to find in a folder."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from whispyx.models.names import Distribution, ModelPackage

from .ct2_maker import random_model, write_folder


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_wheel(folder: Path, distribution: Distribution, files: dict[str, bytes]) -> Path:
    """Write a wheel whose module holds `files`."""
    stem = distribution.name.replace("-", "_")
    info = f"{stem}-{distribution.version}.dist-info"
    content = {f"{distribution.module}/{name}": data for name, data in files.items()}
    content[f"{distribution.module}/__init__.py"] = b"raise RuntimeError('data packages are not imported')\n"
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {distribution.name}\nVersion: {distribution.version}\n".encode()
    )
    content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in content.items()
    ]
    content[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{distribution.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def two_part_model(folder: Path) -> tuple[ModelPackage, dict[Distribution, dict[str, bytes]]]:
    """A tiny model cut into two distributions, and the files of each."""
    ct2 = write_folder(folder, random_model())
    weights, tokenizer = (ct2 / "model.bin").read_bytes(), (ct2 / "tokenizer.json").read_bytes()
    half = len(weights) // 2
    one = Distribution("whispyx-test-part1", "1.0", "whispyx_test_part1", half)
    two = Distribution("whispyx-test-part2", "1.0", "whispyx_test_part2", len(weights) - half)
    package = ModelPackage(
        extra="test",
        distributions=(one, two),
        weights=((0, "data/part1"), (1, "data/part2")),
        weights_sha256=sha256(weights),
        tokenizer=(0, "data/tokenizer.json"),
        tokenizer_sha256=sha256(tokenizer),
    )
    return package, {
        one: {"data/part1": weights[:half], "data/tokenizer.json": tokenizer},
        two: {"data/part2": weights[half:]},
    }


BACKEND = b"""
import os
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    path = os.path.join(folder, "whispyx_test_sounds-1.0.dist-info")
    os.mkdir(path)
    with open(os.path.join(path, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: whispyx-test-sounds\\nVersion: 1.0\\n")
    return os.path.basename(path)
def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise RuntimeError("nothing is built in a download")
"""


def make_sdist(folder: Path, files: dict[str, bytes]) -> Path:
    """Write the source distribution whispyx-test-sounds 1.0, whose metadata needs no other package."""
    top = "whispyx_test_sounds-1.0"
    content = {
        "PKG-INFO": b"Metadata-Version: 2.1\nName: whispyx-test-sounds\nVersion: 1.0\n",
        "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND,
        **files,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{top}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path
