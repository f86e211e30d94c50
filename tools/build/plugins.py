"""Which plugins are built: reads backends/*/plugin.toml and turns the user's words into CMake options and targets."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.build import ROOT, BuildError
from tools.build.compiling import require_compiler
from tools.build.config import BuildConfig
from tools.build.shared import manifest, probes

__all__ = ["PluginPlan", "chosen", "cpu_flags", "lacking", "manifest_of", "numbered", "plan_of"]


@dataclass(frozen=True)
class PluginPlan:
    """What CMake is told: options by name, and the targets, each of which makes one `lib<target>.so`."""

    options: dict[str, str]
    targets: tuple[str, ...]


def plan_of(
    backend: manifest.Manifest, config: BuildConfig, *, machine: str | None = None, flags: frozenset[str] | None = None
) -> PluginPlan:
    """Return what CMake is told about one backend.

    Parameters
    ----------
    machine : str, optional
        Processor family as `platform.machine` names it; this machine's by default.
    flags : frozenset of str, optional
        Instruction sets as /proc/cpuinfo names them; this machine's by default.

    Raises
    ------
    BuildError
        A variant is unknown, or variants were chosen where there are none.
    """
    machine = platform.machine() if machine is None else machine
    build = backend.build
    variants = build.variants
    if variants is not None and machine in variants.machines:
        names = _choose(config.cpu_variants, variants, cpu_flags() if flags is None else flags)
        targets = [variants.target.format(variant=name) for name in names]
        return PluginPlan({**build.cmake, **variants.cmake}, tuple(targets))
    if variants is not None and config.cpu_variants not in (("native",), ("all",)):
        raise BuildError(
            f"WHISPYX_CPU_VARIANTS names {', '.join(config.cpu_variants)}, but on {machine or 'this machine'} "
            f"the {backend.name} plugin has no variants. Unset the variable."
        )
    return PluginPlan(dict(build.cmake), build.targets)


@cache
def chosen(config: BuildConfig) -> tuple[manifest.Manifest, ...]:
    """Return the backends to build: those that were named, which must be possible, or of 'all' those that are.

    Raises
    ------
    BuildError
        A backend that was named is unknown or cannot be built here.
    """
    if config.backends == ("all",):
        return tuple(filter(None, (_possible(name) for name in manifest.names(ROOT))))
    named = [manifest_of(name, "WHISPYX_BUILD_BACKENDS names") for name in dict.fromkeys(config.backends)]
    for backend in named:
        missing = lacking(backend) if backend.build.probes else []
        if missing or not backend.build.targets:
            reason = numbered(missing) or "It has nothing to compile."
            raise BuildError(f"WHISPYX_BUILD_BACKENDS names {backend.name}, which cannot be built here. {reason}")
    return tuple(named)


def _possible(name: str) -> manifest.Manifest | None:
    """Return the backend if it can be built here; say why not otherwise."""
    backend = manifest_of(name)
    if not backend.build.targets:
        return None
    missing = lacking(backend) if backend.build.probes else []
    if missing:
        print(f"whispyx build: {name} is not built. {numbered(missing)}", flush=True)
    return None if missing else backend


def lacking(backend: manifest.Manifest, settings: Mapping[str, str] | None = None) -> list[str]:
    """Return what is missing to build a backend, each with the way to get it, as sentences."""
    try:
        require_compiler(python=False)
    except BuildError as error:
        return [str(error)]  # headers and libraries are looked for with the compiler
    return [str(missing) for missing in probes.missing(backend.build.probes, settings)]


def numbered(missing: list[str]) -> str:
    """Return what is missing as one paragraph."""
    if len(missing) < 2:
        return "".join(missing)
    return f"{len(missing)} things are missing. " + " ".join(f"({i}) {text}." for i, text in enumerate(missing, 1))


def manifest_of(name: str, asked: str = "There is no backend") -> manifest.Manifest:
    """Return what backends/`name` says; raise BuildError when there is no such folder or it is malformed."""
    known = manifest.names(ROOT)
    if name not in known:
        raise BuildError(
            f"{asked} '{name}', which is not a folder with a plugin.toml under backends/. "
            f"There are: {', '.join(known)}."
        )
    try:
        return manifest.read(manifest.path_of(name, ROOT))
    except manifest.ManifestError as error:
        raise BuildError(str(error)) from error


def _choose(wanted: tuple[str, ...], variants: manifest.Variants, flags: frozenset[str] | None) -> list[str]:
    """Return the variants to build, plain ones first."""
    table: Mapping[str, tuple[str, ...]] = variants.flags
    unknown = [name for name in wanted if name not in (*table, "native") and wanted != ("all",)]
    if unknown:
        raise BuildError(
            f"WHISPYX_CPU_VARIANTS names {', '.join(map(repr, unknown))}. Give 'all' alone, or a comma list of: "
            f"native, {', '.join(table)}."
        )
    # Where the processor cannot be asked, 'native' builds everything: slower to build, never slower to run.
    if wanted == ("all",) or ("native" in wanted and flags is None):
        return list(table)
    if "native" in wanted:
        best = [name for name, needs in table.items() if flags is not None and flags.issuperset(needs)][-1]
        wanted = (variants.fallback, best, *wanted)
    return [name for name in table if name in wanted]


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    """Return the instruction sets of this machine's first processor, or None where the system does not list them."""
    try:
        found = re.search(r"^flags\s*:(.*)$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return frozenset(found.group(1).split()) if found else None
