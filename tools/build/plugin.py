"""Compiles one plugin against a base library that is there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.build import BuildError, packages
from tools.build.compiling import Step, Workshop, program
from tools.build.config import BuildConfig
from tools.build.plugins import plan_of
from tools.build.shared import manifest

__all__ = ["Compilation", "Ready"]


@dataclass(frozen=True)
class Ready:
    """What a compilation works with: programs, CMake options that name packages, libraries to put beside the plugin."""

    cmake: str
    ninja: str
    options: Mapping[str, str]
    beside: tuple[Path, ...]


@dataclass(frozen=True)
class Compilation:
    """One plugin to be compiled.

    Attributes
    ----------
    backend : Manifest
    config : BuildConfig
    base : pathlib.Path
        The base library to link to.
    store : pathlib.Path
        Where Python packages that have to be fetched are kept.
    tell : callable
        Called with words when something takes a while.
    settings : mapping of str to str
        CMake options of the user.
    """

    backend: manifest.Manifest
    config: BuildConfig
    base: Path
    store: Path
    tell: Callable[[str], None]
    settings: Mapping[str, str]

    def prepare(self) -> Ready:
        """Find, or fetch, the programs and packages."""
        cmake, ninja = self._program("cmake"), self._program("ninja")
        return Ready(cmake, ninja, self._packages(), tuple(self._beside()))

    def run(self, ready: Ready, folder: Path, tree: Path, step: Step, jobs: int) -> list[Path]:
        """Compile in the build `folder`; return the plugin's libraries."""
        chosen = plan_of(self.backend, self.config)
        # What ggml would switch on by itself is made where it is asked for, and not along with every other.
        options = {"GGML_CPU": "OFF", "GGML_BLAS": "OFF", "GGML_METAL": "OFF"}
        options |= {**ready.options, **chosen.options, **self.settings, "WHISPYX_BASE": str(self.base)}
        workshop = Workshop(folder, tree, ready.cmake, ready.ninja, step, self.config.build_type)
        workshop.configure(options, self.backend.name)
        workshop.compile(chosen.targets, jobs, self.backend.name)
        return [workshop.plugin(target) for target in chosen.targets]

    def _program(self, name: str) -> str:
        found = program(name)
        if found is None:
            self._provide("cmake>=3.18" if name == "cmake" else name)
            found = program(name)
        if found is None:
            raise BuildError(f"{name} was fetched with pip, but the package does not hold the program.")
        return found

    def _provide(self, requirement: str) -> None:
        packages.provide(requirement, self.store, self.tell, offline=self.config.offline)

    def _packages(self) -> dict[str, str]:
        """Return the CMake options that name Python packages, fetching those that are not here."""
        options = {}
        for needed in self.backend.build.python:
            if needed.unless in self.settings:
                continue
            folder = packages.folder_of(needed.module)
            if folder is None:
                self._provide(needed.requirement)
                folder = packages.folder_of(needed.module)
            if folder is None:
                raise BuildError(f"{needed.requirement} does not hold the package {needed.module}.")
            options[needed.option] = str(folder)
        return options

    def _beside(self) -> list[Path]:
        """Return the libraries to put beside the plugin."""
        if not self.backend.run.bundle or any(needed.unless in self.settings for needed in self.backend.build.python):
            return []
        found = []
        for entry in self.backend.run.preload:
            module, _, rest = entry.partition("/")
            folder = packages.folder_of(module)
            if folder is None or not (folder / rest).is_file():
                raise BuildError(f"{entry} is missing, though {self.backend.name} was linked to it.")
            found.append(folder / rest)
        return found
