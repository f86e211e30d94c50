"""Compiles ggml's base library and the plugins with CMake and Ninja, and puts them into a package folder."""

from __future__ import annotations

import filecmp
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.build import ROOT, BuildError
from tools.build.config import BuildConfig
from tools.build.plugins import PluginPlan, plan

__all__ = ["BASE", "Native", "build", "files", "install_file", "require_compiler"]

BASE: Final = "libwhispyx-ggml-base.so"
BUILD: Final = ROOT / "build" / "native"
_TOOLCHAIN: Final = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")  # read by CMake itself


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
    cmake, ninja = _program("cmake", "CMAKE_BIN_DIR"), _program("ninja", "BIN_DIR")
    _configure(config, tree, chosen, cmake, ninja)
    targets = ["ggml-base", *chosen.targets]
    _run([cmake, "--build", str(BUILD), "--parallel", str(config.jobs), "--target", *targets], "compiling ggml")
    library_dir = BUILD / "lib"
    made = {BASE: library_dir / BASE, "LICENSE.ggml": tree / "LICENSE"}
    for target in chosen.targets:
        made[f"plugins/lib{target}.so"] = library_dir / "plugins" / f"lib{target}.so"
    return Native(made, library_dir)


def _configure(config: BuildConfig, tree: Path, chosen: PluginPlan, cmake: str, ninja: str) -> None:
    """Run CMake unless the last run had the same inputs."""
    options = {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo" if config.debug else "Release",
        "CMAKE_MAKE_PROGRAM": ninja,
        "WHISPYX_GGML_SOURCE": tree.as_posix(),
        "WHISPYX_ROOT": ROOT.as_posix(),
        "WHISPYX_SANITIZE": "ON" if config.build_type == "sanitize" else "OFF",
        "GGML_BACKEND_DL": "ON",
        "GGML_NATIVE": "OFF",
        "GGML_OPENMP": "OFF",
        "GGML_LLAMAFILE": "ON",
        "GGML_CCACHE": "OFF",
        **chosen.options,
    }
    arguments = [cmake, "-S", str(ROOT / "tools/build/cmake"), "-B", str(BUILD), "-G", "Ninja"]
    arguments += [f"-D{name}={value}" for name, value in options.items()]
    # CMake keeps the first compiler and the first paths of a build folder for ever, so those start a new one.
    identity = {name: os.environ.get(name) for name in _TOOLCHAIN} | {"root": str(ROOT), "tree": str(tree)}
    stamp = BUILD / "whispyx-configured.json"
    wanted = {"identity": _digest(identity), "arguments": _digest(arguments)}
    try:
        last = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        last = {}
    if last == wanted and (BUILD / "build.ninja").exists() and Path(cmake).exists():
        return
    if last.get("identity") != wanted["identity"]:
        shutil.rmtree(BUILD, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    _run(arguments, "configuring ggml")
    stamp.write_text(json.dumps(wanted), encoding="utf-8")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


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


def _program(name: str, attribute: str) -> str:
    """Return the path of cmake or ninja: from its Python package, which is a build requirement, or from PATH."""
    try:
        folder = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError):
        folder = None
    found = shutil.which(name, path=folder) if folder else None
    found = found or shutil.which(name)
    if found is None:
        raise BuildError(
            f"{name} was not found. It is a build requirement that pip installs by itself; when building without build "
            f"isolation, run '{sys.executable} -m pip install {name}' first."
        )
    return found


def require_compiler() -> None:
    """Raise BuildError unless there are a C and a C++ compiler and the headers of Python."""
    import sysconfig

    for variable, names, packages in (("CC", ("cc", "gcc", "clang"), "gcc"), ("CXX", ("c++", "g++", "clang++"), "g++")):
        chosen = os.environ.get(variable, "").split()
        if not any(shutil.which(name) for name in (chosen[:1] or names)):
            language = "C++" if variable == "CXX" else "C"
            asked = f"{variable} names '{chosen[0]}', which does not exist" if chosen else f"none of {', '.join(names)}"
            raise BuildError(
                f"No {language} compiler was found ({asked}{'' if chosen else ' is on PATH'}). Install one (Debian and "
                f"Ubuntu: apt-get install {packages}; Fedora: dnf install gcc-c++; Alpine: apk add build-base), or set "
                f"{variable} to yours, and build again."
            )
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        raise BuildError(
            f"The headers of Python are missing (no Python.h in {include}). Install them (Debian and Ubuntu: apt-get "
            f"install python3-dev; Fedora: dnf install python3-devel), or use a Python that has them."
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
