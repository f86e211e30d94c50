"""The setuptools commands that setup.py installs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

from tools.build import ROOT, BuildError, cython, native, vendor
from tools.build.config import BuildConfig
from tools.build.locking import one_at_a_time

__all__ = ["BuildExt", "BuildPy", "Sdist", "require_writable"]


def require_writable(root: Path = ROOT) -> None:
    """Raise BuildError unless the source tree can be written to."""
    probe = root / "build" / f".probe-{os.getpid()}"
    try:
        probe.parent.mkdir(exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BuildError(
            f"The source tree {root} cannot be written to ({error.strerror}: {error.filename}). The build keeps its "
            f"intermediate files in build/ and the ggml source in vendor/. Copy the tree to a folder you may write to "
            f"and build there, or install a wheel."
        ) from error


def one_build_at_a_time() -> contextlib.AbstractContextManager[None]:
    """Hold a lock on the tree; a second build waits for the first."""
    words = "whispyx build: waiting for another build of this tree to end"
    return one_at_a_time(ROOT / "build" / ".lock", lambda: print(words, flush=True))


class BuildExt(build_ext):
    """Builds ggml, its plugins and the Cython modules.

    Modules are compiled into a folder under build/ that outlives the command, whatever folder pip or setuptools hands
    over, so that only what changed is compiled; the results are then copied where they are wanted.
    """

    def run(self) -> None:
        try:
            require_writable()
            with one_build_at_a_time(), _working_in(ROOT):
                self._build()
        except BuildError as error:
            raise SystemExit(error.paragraph()) from None

    def _build(self) -> None:
        config = BuildConfig.from_env()
        print(f"whispyx build:\n{config}", flush=True)
        native.require_compiler()  # this and the choice of plugins are checked before anything is fetched
        native.files(config)
        libraries = native.build(config, vendor.source_tree(config))
        cython.cythonize(config, config.ggml_source or vendor.VENDOR / "ggml", libraries, self.extensions)
        options: dict[str, Any] = self.__dict__
        wanted = {name: options[name] for name in ("build_lib", "build_temp", "inplace")}
        options.update(build_lib=str(cython.STAGE), build_temp="build/obj", inplace=False)
        options["parallel"] = options["parallel"] or config.jobs
        try:
            super().run()
        finally:
            options.update(wanted)
        top = ROOT if self.inplace else Path(self.build_lib)
        for extension in self.extensions:
            name = self.get_ext_filename(self.get_ext_fullname(extension.name))
            native.install_file(cython.STAGE / name, top / name)
        libraries.install(top / "whispyx", with_kit=not self.inplace)
        if self.inplace:
            self._remove_orphans()

    def build_extensions(self) -> None:
        # Some Pythons were linked with an absolute run path and hand it on to every module; ours name only $ORIGIN.
        for name in ("linker_so", "linker_so_cxx"):
            command = getattr(self.compiler, name, None)
            if command:
                setattr(self.compiler, name, [word for word in command if not word.startswith("-Wl,-rpath")])
        super().build_extensions()

    def _remove_orphans(self) -> None:
        """Remove modules in the source tree whose .pyx is gone: they would still be importable."""
        made = {ROOT / self.get_ext_filename(self.get_ext_fullname(extension.name)) for extension in self.extensions}
        suffix = self.get_ext_filename("x")[1:]
        for path in (ROOT / "whispyx").rglob(f"*{suffix}"):
            if path not in made:
                path.unlink()

    def get_outputs(self) -> list[str]:
        return sorted({*super().get_outputs(), *(built for built, _ in self._native_outputs())})

    def get_output_mapping(self) -> dict[str, str]:
        return {**super().get_output_mapping(), **(dict(self._native_outputs()) if self.inplace else {})}

    def _native_outputs(self) -> list[tuple[str, str]]:
        try:
            names = native.files(BuildConfig.from_env())
            if not self.inplace:
                names += native.kit_files()
        except BuildError as error:
            raise SystemExit(error.paragraph()) from None
        return [(os.path.join(self.build_lib, "whispyx", "_native", name), f"whispyx/_native/{name}") for name in names]


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class BuildPy(build_py):
    """Copies the Python files, after removing what an earlier build of this tree copied: a module that has since been
    renamed would otherwise stay in the wheel."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "whispyx"), ignore_errors=True)
        super().run()


class Sdist(sdist):
    """Makes a source distribution that holds the pinned ggml tree."""

    def run(self) -> None:
        try:
            require_writable()
            with one_build_at_a_time():
                vendor.ensure(offline=BuildConfig.from_env().offline)
        except BuildError as error:
            raise SystemExit(error.paragraph()) from None
        super().run()
