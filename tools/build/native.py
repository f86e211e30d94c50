"""Compiles ggml's base library and the plugins with CMake and Ninja, and puts them into a package folder."""

from __future__ import annotations

import filecmp
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tools.build import ROOT, BuildError
from tools.build.compiling import Workshop, require_compiler, require_program
from tools.build.config import BuildConfig
from tools.build.plugin import Compilation
from tools.build.plugins import chosen, plan_of

__all__ = ["BASE", "Native", "build", "files", "install_file", "kit_files", "require_compiler"]

BASE: Final = "libwhispyx-ggml-base.so"
BUILD: Final = ROOT / "build" / "native"
KIT: Final = (
    "backends/*/plugin.toml",
    "backends/common/*.c",
    "tools/__init__.py",
    *(
        f"tools/build/{name}.py"
        for name in (
            *("__init__", "compiling", "config", "later", "locking", "native", "packages", "patching", "plugin"),
            *("plugins", "shared", "vendor"),
        )
    ),
    "tools/build/cmake/CMakeLists.txt",
    "tools/build/cmake/modules/*.cmake",
    "vendor/ggml.toml",
    "vendor/patches/*.patch",
    "whispyx/plugins/manifest.py",
    "whispyx/plugins/probes.py",
)
"""What `kit_files` takes along."""


@dataclass(frozen=True)
class Native:
    """What a native build made: files by their place under whispyx/_native, and where the linker finds the base."""

    files: dict[str, Path]
    library_dir: Path

    def install(self, package: Path, *, with_kit: bool) -> None:
        """Copy the files to `package`/_native and remove plugins of earlier builds that are no longer wanted."""
        target = package / "_native"
        wanted = self.files | kit_files() if with_kit else self.files
        for name, source in wanted.items():
            install_file(source, target / name)
        ours = (path for folder in ("plugins", "kernels") for path in (target / folder).glob("*"))
        for old in (*ours, *(path for path in target.glob("kit/**/*") if path.is_file())):
            if old.relative_to(target).as_posix() not in wanted:
                old.unlink()


def files(config: BuildConfig) -> list[str]:
    """Return the paths under whispyx/_native that a build makes, without building."""
    backends = chosen(config)
    names = [f"lib{target}.so" for backend in backends for target in plan_of(backend, config).targets]
    names += [PurePosixPath(entry).name for backend in backends if backend.run.bundle for entry in backend.run.preload]
    return [BASE, "LICENSE.ggml", *(f"plugins/{name}" for name in names), *(f"kernels/{name}" for name in kernels())]


def kernels() -> list[str]:
    """Return the file names of the libraries of our own kernels: one for each instruction set, on x86-64."""
    sets = ("avx2", "avx512", "avx512-bf16") if platform.machine() in ("x86_64", "AMD64") else ()
    return [f"libwhispyx-kernels-{name}.so" for name in sets]


def build(config: BuildConfig, tree: Path) -> Native:
    """Compile what `config` asks for from the ggml `tree`; what is up to date is not compiled again."""
    require_compiler()
    backends = chosen(config)
    cmake, ninja = require_program("cmake"), require_program("ninja")
    workshop = Workshop(BUILD, tree, cmake, ninja, _run, config.build_type)
    # The base, and the CPU plugin along with it. Every other plugin is compiled by itself, against that base.
    with_base = [plan_of(backend, config) for backend in backends if backend.kind == "CPU"]
    targets = [target for part in with_base for target in part.targets]
    workshop.configure({name: value for part in with_base for name, value in part.options.items()})
    ours = [workshop.libraries / "kernels" / name for name in kernels()]
    workshop.compile(["ggml-base", *targets, *(["whispyx-kernels"] if ours else [])], config.jobs)
    base = workshop.libraries / BASE
    made = [workshop.plugin(target) for target in targets]
    for backend in backends:
        if backend.kind != "CPU":
            job = Compilation(backend, config, base, ROOT / "build" / "packages", _say, settings={})
            ready = job.prepare()
            made += job.run(ready, BUILD.with_name(f"native-{backend.name}"), tree, _run, config.jobs)
            made += ready.beside
    every = {BASE: base, "LICENSE.ggml": tree / "LICENSE"}
    every |= {f"plugins/{path.name}": path for path in made} | {f"kernels/{path.name}": path for path in ours}
    return Native(every, workshop.libraries)


def _say(words: str) -> None:
    print(f"whispyx build: {words}", flush=True)


def kit_files() -> dict[str, Path]:
    """Return what an installed whispyx needs to build a plugin, by its place under whispyx/_native.

    Laid out like the source tree, so that everything in it works from there as it does from here.
    """
    found = [path for pattern in KIT for path in ROOT.glob(pattern)]
    return {f"kit/{path.relative_to(ROOT).as_posix()}": path for path in sorted(found)}


def _run(command: list[str], what: str) -> None:
    _say(what)
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


def install_file(source: Path, target: Path) -> Path:
    """Copy a file and return the copy: a new one that is renamed, so that a process keeps the old one it has mapped."""
    if target.exists() and filecmp.cmp(source, target, shallow=False):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, scratch)
        scratch.chmod(0o755 if source.suffix == ".so" else 0o644)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
    return target
