"""Compiles ggml's base library and the plugins with CMake and Ninja, and puts them into a package folder."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.build import ROOT, BuildError
from tools.build.compiling import Workshop, require_compiler, require_program
from tools.build.config import BuildConfig
from tools.build.plugins import plan

__all__ = ["BASE", "Native", "build", "files", "install_file", "require_compiler"]

BASE: Final = "libwhispyx-ggml-base.so"
BUILD: Final = ROOT / "build" / "native"


@dataclass(frozen=True)
class Native:
    """What a native build made: files by their place under whispyx/_native, and where the linker finds the base."""

    files: dict[str, Path]
    library_dir: Path

    def install(self, package: Path) -> None:
        """Copy the files to `package`/_native and remove plugins of earlier builds that are no longer wanted."""
        target = package / "_native"
        for name, source in self.files.items():
            install_file(source, target / name)
        for old in (target / "plugins").iterdir():
            if f"plugins/{old.name}" not in self.files:
                old.unlink()


def files(config: BuildConfig) -> list[str]:
    """Return the paths under whispyx/_native that a build makes, without building."""
    return [BASE, "LICENSE.ggml", *(f"plugins/lib{target}.so" for target in plan(config).targets)]


def build(config: BuildConfig, tree: Path) -> Native:
    """Compile what `config` asks for from the ggml `tree`; what is up to date is not compiled again."""
    require_compiler()
    chosen = plan(config)
    cmake, ninja = require_program("cmake"), require_program("ninja")
    workshop = Workshop(BUILD, tree, cmake, ninja, _run, config.build_type)
    workshop.configure(chosen.options)
    workshop.compile(["ggml-base", *chosen.targets], config.jobs)
    made = {BASE: workshop.libraries / BASE, "LICENSE.ggml": tree / "LICENSE"}
    for target in chosen.targets:
        made[f"plugins/lib{target}.so"] = workshop.plugin(target)
    return Native(made, workshop.libraries)


def _run(command: list[str], what: str) -> None:
    print(f"whispyx build: {what}", flush=True)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode == 0:
            return
        log.seek(0)
        sys.stderr.write(log.read()[-20_000:])
    raise BuildError(
        f"{what[0].upper()}{what[1:]} failed with exit status {done.returncode}; the output of the failed step is "
        f"above. If the compiler was killed, memory ran out: set WHISPYX_BUILD_JOBS=1. A compiler older than GCC 9 or "
        f"Clang 10 is too old. WHISPYX_CPU_VARIANTS=x64 builds with the fewest demands."
    )


def install_file(source: Path, target: Path) -> None:
    """Copy a file by writing a new one and renaming it, so that a process that has the old one mapped keeps it."""
    if target.exists() and filecmp.cmp(source, target, shallow=False):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, scratch)
        scratch.chmod(0o755 if source.suffix == ".so" else 0o644)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
