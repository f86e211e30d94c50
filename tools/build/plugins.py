"""Which plugins are built: reads backends/*/plugin.toml and turns the user's words into CMake options and targets."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.build import ROOT, BuildError
from tools.build.config import BuildConfig
from tools.build.shared import manifest

__all__ = ["PluginPlan", "cpu_flags", "manifest_of", "plan", "plan_of"]


@dataclass(frozen=True)
class PluginPlan:
    """What CMake is told: options by name, and the targets, each of which makes one `lib<target>.so`."""

    options: dict[str, str]
    targets: tuple[str, ...]


def plan(config: BuildConfig, *, machine: str | None = None, flags: frozenset[str] | None = None) -> PluginPlan:
    """Return the plugins to build.

    Parameters
    ----------
    machine : str, optional
        Processor family as `platform.machine` names it; this machine's by default.
    flags : frozenset of str, optional
        Instruction sets as /proc/cpuinfo names them; this machine's by default.

    Raises
    ------
    BuildError
        A backend or variant is unknown, or variants were chosen where there are none.
    """
    options: dict[str, str] = {}
    targets: list[str] = []
    for name in config.backends:
        part = plan_of(manifest_of(name, "WHISPYX_BUILD_BACKENDS names"), config, machine=machine, flags=flags)
        options.update(part.options)
        targets += part.targets
    return PluginPlan(options, tuple(dict.fromkeys(targets)))


def plan_of(
    backend: manifest.Manifest, config: BuildConfig, *, machine: str | None = None, flags: frozenset[str] | None = None
) -> PluginPlan:
    """Return the options and targets of one backend; parameters and errors as for `plan`."""
    machine = platform.machine() if machine is None else machine
    build = backend.build
    variants = build.variants
    if variants is not None and machine in variants.machines:
        chosen = _choose(config.cpu_variants, variants, cpu_flags() if flags is None else flags)
        targets = [variants.target.format(variant=variant) for variant in chosen]
        return PluginPlan({**build.cmake, **variants.cmake}, tuple(targets))
    if variants is not None and config.cpu_variants not in (("native",), ("all",)):
        raise BuildError(
            f"WHISPYX_CPU_VARIANTS names {', '.join(config.cpu_variants)}, but on {machine or 'this machine'} "
            f"the {backend.name} plugin has no variants. Unset the variable."
        )
    return PluginPlan(dict(build.cmake), build.targets)


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
    unknown = [name for name in wanted if name not in table and (name not in ("native", "all") or len(wanted) > 1)]
    if unknown:
        raise BuildError(
            f"WHISPYX_CPU_VARIANTS names {', '.join(map(repr, unknown))}. Give 'native' or 'all' alone, or a comma "
            f"list of: {', '.join(table)}."
        )
    # Where the processor cannot be asked, 'native' builds everything: slower to build, never slower to run.
    if wanted == ("all",) or (wanted == ("native",) and flags is None):
        return list(table)
    if wanted == ("native",):
        best = [name for name, needs in table.items() if flags is not None and flags.issuperset(needs)][-1]
        wanted = (variants.fallback, best)
    return [name for name in table if name in wanted]


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    """Return the instruction sets of this machine's first processor, or None where the system does not list them."""
    try:
        found = re.search(r"^flags\s*:(.*)$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return frozenset(found.group(1).split()) if found else None
