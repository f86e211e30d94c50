"""Turns every .pyx under whispyx/ into one extension module."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.build import ROOT, BuildError
from tools.build.config import BuildConfig
from tools.build.native import Native

if TYPE_CHECKING:
    from setuptools import Extension

__all__ = ["STAGE", "cythonize", "extensions"]

SHARED: Final = "whispyx._cyutility"
"""Module with the helpers that Cython would otherwise compile into each extension."""

_ABI: Final = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
GENERATED: Final = Path("build", "generated")
STAGE: Final = Path("build", f"ext-{_ABI}")
"""Folder (from the root) where finished extension modules lie; a module that is up to date stays there."""

_DIRECTIVES: Final[dict[str, Any]] = {
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}


def _is_cpp(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        return any(line.strip() == "# distutils: language = c++" for line in itertools.islice(file, 20))


def extensions() -> list[Extension]:
    """Return one Extension per .pyx, not yet translated, and the shared helper module."""
    from setuptools import Extension

    found = [Extension(SHARED, sources=[])]
    for path in sorted((ROOT / "whispyx").rglob("*.pyx")):
        relative = path.relative_to(ROOT)
        found.append(
            Extension(
                ".".join(relative.with_suffix("").parts),
                [relative.as_posix()],
                language="c++" if _is_cpp(path) else None,
            )
        )
    return found


def cythonize(config: BuildConfig, tree: Path, native: Native, modules: list[Extension]) -> None:
    """Translate the modules to C (only where something changed) and set how each is compiled. Works in ROOT."""
    from Cython.Build import cythonize as translate
    from Cython.Compiler.Errors import CompileError

    version = importlib.metadata.version("cython")
    includes = [str(tree / "include"), str(tree / "src"), "whispyx/_core", "backends/kernels/src"]
    directives = {**_DIRECTIVES, "boundscheck": config.debug, "initializedcheck": config.debug}
    compile_args, link_args = _flags(config)
    recipe = _recipe([version, directives, compile_args, link_args, includes])
    for module in modules:
        module.include_dirs = includes
        module.extra_compile_args = [*compile_args, *(["-std=c++17"] if module.language == "c++" else [])]
        if module.name != SHARED:
            depth = module.name.count(".") - 1
            module.libraries = ["whispyx-ggml-base"]
            module.library_dirs = [str(native.library_dir)]
            module.extra_link_args = [*link_args, f"-Wl,-rpath,$ORIGIN/{'../' * depth}_native"]
        else:
            module.extra_link_args = link_args
    try:
        translated = translate(
            modules,
            nthreads=config.jobs,
            build_dir=str(GENERATED),
            include_path=["."],
            language_level=3,
            compiler_directives=directives,
            shared_utility_qualified_name=SHARED,
            quiet=False,
        )
    except CompileError as error:
        raise BuildError(
            f"Cython could not translate {str(error) or 'a module'}; its messages are above. If the tree is unchanged, "
            f"the installed Cython ({version}) does not suit it: pyproject.toml says which versions do."
        ) from error
    by_name = {module.name: module for module in translated}
    for module in modules:
        new = by_name[module.name]
        module.sources = new.sources
        module.depends = [*new.depends, str(recipe)]
        module.language = new.language


def _flags(config: BuildConfig) -> tuple[list[str], list[str]]:
    compile_args = ["-fno-strict-aliasing", f"-ffile-prefix-map={ROOT}=whispyx", "-Wno-unused-function"]
    if not config.debug:
        return [*compile_args, "-O3", "-g0"], [] if sys.platform == "darwin" else ["-s"]
    compile_args += ["-O1", "-g", "-UNDEBUG"]
    link_args: list[str] = []
    if config.build_type == "sanitize":
        compile_args += ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
        link_args += ["-fsanitize=address,undefined"]
    return compile_args, link_args


def _recipe(parts: list[Any]) -> Path:
    """Return a file that is newer than the modules when flags, directives or Cython changed; then start afresh."""
    path = STAGE / "recipe.json"
    text = json.dumps(parts, indent=1)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        shutil.rmtree(GENERATED, ignore_errors=True)
        shutil.rmtree(STAGE, ignore_errors=True)
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    return path
