"""Which plugins are built: reads backends/*/plugin.toml and turns the user's words into CMake options and targets."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.build import ROOT, BuildError
from tools.build.config import BuildConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["PluginPlan", "cpu_flags", "plan"]

BACKENDS: Final = ROOT / "backends"


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
    machine = platform.machine() if machine is None else machine
    options: dict[str, str] = {}
    targets: list[str] = []
    for name in config.backends:
        manifest = _manifest(name)
        build = manifest["build"]
        options.update(build.get("cmake", {}))
        variants = build.get("variants")
        if variants and machine in variants["machines"]:
            chosen = _choose(config.cpu_variants, variants, cpu_flags() if flags is None else flags)
            options.update(variants.get("cmake", {}))
            targets += [variants["target"].format(variant=variant) for variant in chosen]
        else:
            if variants and config.cpu_variants not in (("native",), ("all",)):
                raise BuildError(
                    f"WHISPYX_CPU_VARIANTS names {', '.join(config.cpu_variants)}, but on {machine or 'this machine'} "
                    f"the {name} plugin has no variants. Unset the variable."
                )
            targets += build["targets"]
    return PluginPlan(options, tuple(dict.fromkeys(targets)))


def _manifest(name: str) -> dict[str, Any]:
    path = BACKENDS / name / "plugin.toml"
    known = sorted(found.parent.name for found in BACKENDS.glob("*/plugin.toml"))
    if name not in known:
        raise BuildError(
            f"WHISPYX_BUILD_BACKENDS names '{name}', which is not a folder with a plugin.toml under backends/. "
            f"There are: {', '.join(known)}."
        )
    with path.open("rb") as file:
        manifest: dict[str, Any] = tomllib.load(file)
    return manifest


def _choose(wanted: tuple[str, ...], variants: dict[str, Any], flags: frozenset[str] | None) -> list[str]:
    """Return the variants to build, plain ones first."""
    table: dict[str, list[str]] = variants["flags"]
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
        wanted = (variants["fallback"], best)
    return [name for name in table if name in wanted]


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    """Return the instruction sets of this machine's first processor, or None where the system does not list them."""
    try:
        found = re.search(r"^flags\s*:(.*)$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return frozenset(found.group(1).split()) if found else None
