"""What a folder under backends/ says about its plugin: how it is built, what it needs, how it was proven.

The build reads this module by its path, before whispyx can be imported, so only Python's own library may be imported
here. An installed whispyx carries the manifests in ``_native/kit``, laid out like the source tree.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "KINDS",
    "NEEDS",
    "STATES",
    "Build",
    "Manifest",
    "ManifestError",
    "Probe",
    "Requirement",
    "Run",
    "Variants",
    "kit_root",
    "names",
    "path_of",
    "read",
]

KINDS: Final = ("CPU", "GPU", "ACCEL", "ENCODER")
STATES: Final = {
    "run": "built and run",
    "compiled": "compiled, not run",
    "recipe": "recipe only",
}
"""How far we proved a backend, in words for tables."""
NEEDS: Final = ("program", "header", "library", "python", "pkgconfig", "platform", "variable")
"""What a probe can look for."""


class ManifestError(ValueError):
    """A plugin.toml does not have the shape it must have. The message names the file and the entry."""


@dataclass(frozen=True)
class Probe:
    """One thing that must be there, and how to get it.

    Attributes
    ----------
    what : str
        Its name for people, such as "Vulkan's headers".
    need : str
        One of `NEEDS`.
    value : str
        What is looked for: a program, a header as in ``#include``, a library as in ``-l`` or a SONAME, an importable
        package, a package of pkg-config, a platform as in `sys.platform`, or an environment variable that must be set.
    places : tuple of str
        Folders to look in, too, for a program, header or library; ``$NAME`` in one is an environment variable.
    by : str
        For a header: the program that reads it, like a C++ compiler; empty for the C++ compiler.
    unless : str
        A CMake option; when the user sets it, this is not looked for.
    debian, pypi : str
        Packages that bring it.
    hint : str
        One more sentence, for everyone else.
    """

    what: str
    need: str
    value: str
    places: tuple[str, ...] = ()
    by: str = ""
    unless: str = ""
    debian: str = ""
    pypi: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Requirement:
    """A Python package that the compilation uses; it is fetched when the environment does not have it.

    Attributes
    ----------
    requirement : str
        For pip.
    module : str
        The importable package in it.
    option : str
        CMake option that is given the package's folder.
    unless : str
        A CMake option; when the user sets it, the package is not used.
    """

    requirement: str
    module: str
    option: str
    unless: str = ""


@dataclass(frozen=True)
class Variants:
    """One library per instruction set; the registry loads the one with the highest score."""

    machines: tuple[str, ...]
    cmake: Mapping[str, str]
    target: str
    fallback: str
    flags: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Build:
    """How a plugin is compiled.

    Attributes
    ----------
    cmake : mapping of str to str
        Options of ggml's CMake.
    targets : tuple of str
        CMake targets; each makes one ``lib<target>.so``. Empty: there is nothing to compile.
    python : tuple of Requirement
    probes : tuple of Probe
    variants : Variants or None
    """

    cmake: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    python: tuple[Requirement, ...] = ()
    probes: tuple[Probe, ...] = ()
    variants: Variants | None = None


@dataclass(frozen=True)
class Run:
    """What a plugin needs when it runs.

    Attributes
    ----------
    preload : tuple of str
        Libraries inside of importable Python packages, as package/path, opened before the plugin that is linked to
        them.
    bundle : bool
        Whether those libraries are copied beside a plugin that is built later, so that it works from every
        environment.
    probes : tuple of Probe
    """

    preload: tuple[str, ...] = ()
    bundle: bool = False
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """One plugin.toml.

    Attributes
    ----------
    name : str
        What users write in ``WHISPYX_BACKEND``; also the name of the folder.
    kind : str
        One of `KINDS`.
    description, proven : str
        A phrase, and one honest sentence.
    state : str
        One of `STATES`.
    build, run : Build, Run
    """

    name: str
    kind: str
    description: str
    state: str
    proven: str
    build: Build
    run: Run


def kit_root() -> Path:
    """Return the folder that is laid out like the source tree: the kit of an installation, or the source tree.

    Raises
    ------
    ManifestError
        There is neither.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_native" / "kit", package.parent):
        if (root / "backends" / "cpu" / "plugin.toml").is_file():
            return root
    raise ManifestError(f"{package} has no kit to build plugins with; install whispyx again")


def names(root: Path) -> list[str]:
    """Return the backends under `root`/backends, sorted."""
    return sorted(path.parent.name for path in root.glob("backends/*/plugin.toml"))


def path_of(name: str, root: Path) -> Path:
    """Return where the manifest of a backend lies."""
    return root / "backends" / name / "plugin.toml"


def read(path: Path) -> Manifest:
    """Read a plugin.toml.

    Raises
    ------
    ManifestError
        It cannot be read, or an entry is missing, unknown or of a wrong type.
    """
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise ManifestError(f"{path} cannot be read: {error}") from error
    top = _Table(data, str(path))
    manifest = Manifest(
        name=top.text("name"),
        kind=top.choice("kind", KINDS),
        description=top.text("description"),
        state=top.choice("state", tuple(STATES)),
        proven=top.text("proven"),
        build=_build(top.table("build")),
        run=_run(top.table("run")),
    )
    top.end()
    if manifest.name != path.parent.name:
        raise ManifestError(f"{path}: name is {manifest.name!r}, but the folder is called {path.parent.name!r}")
    return manifest


def _build(table: _Table) -> Build:
    variants = table.table("variants") if "variants" in table else None
    build = Build(
        cmake=table.texts_by_name("cmake"),
        targets=table.texts("targets"),
        python=tuple(_requirement(entry) for entry in table.tables("python")),
        probes=tuple(_probe(entry) for entry in table.tables("probe")),
        variants=None if variants is None else _variants(variants),
    )
    table.end()
    return build


def _run(table: _Table) -> Run:
    run = Run(
        preload=table.texts("preload"),
        bundle=table.flag("bundle"),
        probes=tuple(_probe(entry) for entry in table.tables("probe")),
    )
    table.end()
    return run


def _requirement(table: _Table) -> Requirement:
    made = Requirement(table.text("requirement"), table.text("module"), table.text("option"), table.text("unless", ""))
    table.end()
    return made


def _variants(table: _Table) -> Variants:
    flags = table.table("flags")
    made = Variants(
        machines=table.texts("machines"),
        cmake=table.texts_by_name("cmake"),
        target=table.text("target"),
        fallback=table.text("fallback"),
        flags={name: flags.texts(name) for name in flags},
    )
    flags.end()
    table.end()
    return made


def _probe(table: _Table) -> Probe:
    found = [need for need in NEEDS if need in table]
    if len(found) != 1:
        raise ManifestError(f"{table.place}: a probe has exactly one of {', '.join(NEEDS)}")
    probe = Probe(
        what=table.text("what"),
        need=found[0],
        value=table.text(found[0]),
        places=table.texts("places"),
        by=table.text("by", ""),
        unless=table.text("unless", ""),
        debian=table.text("debian", ""),
        pypi=table.text("pypi", ""),
        hint=table.text("hint", ""),
    )
    table.end()
    if not (probe.debian or probe.pypi or probe.hint):
        raise ManifestError(f"{table.place}: a probe says how to get what is missing: debian, pypi or hint")
    return probe


class _Table:
    """A TOML table that notices entries of a wrong type and, at the end, entries that nobody asked for."""

    def __init__(self, data: Any, place: str) -> None:
        if not isinstance(data, dict):
            raise ManifestError(f"{place} must be a table")
        self.place = place
        self._left: dict[str, Any] = dict(data)
        self._data: dict[str, Any] = data

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def __iter__(self) -> Any:
        return iter(self._data)

    def end(self) -> None:
        if self._left:
            raise ManifestError(f"{self.place}: unknown entries: {', '.join(self._left)}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise ManifestError(f"{self.place}: {name} must be a text")
        return value

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in known:
            raise ManifestError(f"{self.place}: {name} is {value!r}; one of {', '.join(known)} is possible")
        return value

    def flag(self, name: str) -> bool:
        value = self._left.pop(name, False)
        if not isinstance(value, bool):
            raise ManifestError(f"{self.place}: {name} must be true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._left.pop(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ManifestError(f"{self.place}: {name} must be a list of texts")
        return tuple(value)

    def texts_by_name(self, name: str) -> dict[str, str]:
        value = self._left.pop(name, {})
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise ManifestError(f"{self.place}: {name} must be a table of texts")
        return dict(value)

    def table(self, name: str) -> _Table:
        return _Table(self._left.pop(name, {}), f"{self.place}: {name}")

    def tables(self, name: str) -> list[_Table]:
        value = self._left.pop(name, [])
        if not isinstance(value, list):
            raise ManifestError(f"{self.place}: {name} must be a list of tables")
        return [_Table(item, f"{self.place}: {name}") for item in value]
