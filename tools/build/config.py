"""What the person who builds may choose. The only place where build variables are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from tools.build import ROOT, BuildError

__all__ = ["VARIABLES", "BuildConfig", "Variable", "explain"]

BUILD_TYPES: Final = ("release", "debug", "sanitize")


@dataclass(frozen=True)
class Variable:
    """One environment variable of the build: the field it sets, and words for people."""

    name: str
    field: str
    default: str
    meaning: str


VARIABLES: Final = (
    Variable(
        "WHISPYX_GGML_SOURCE",
        "ggml_source",
        "unset: vendor/ggml, fetched as vendor/ggml.toml says",
        "Folder with a ggml source tree of your own. Its version must be the pinned one; it is used as it is, "
        "without the patches of vendor/patches.",
    ),
    Variable(
        "WHISPYX_BUILD_BACKENDS",
        "backends",
        "cpu",
        "Comma list of the folders under backends/ whose plugins are built; what one of them needs must be here. "
        "'all': every one whose needs are here; the others are left out with a line that says why.",
    ),
    Variable(
        "WHISPYX_CPU_VARIANTS",
        "cpu_variants",
        "native",
        "CPU plugins to build: names from backends/cpu/plugin.toml with commas, among which 'native' stands for the "
        "best one for this machine and the one that runs everywhere; or 'all' (for wheels that travel).",
    ),
    Variable(
        "WHISPYX_BUILD_JOBS",
        "jobs",
        "number of cores this process may use",
        "How many compilers run side by side.",
    ),
    Variable(
        "WHISPYX_BUILD_OFFLINE",
        "offline",
        "0",
        "1 forbids the build to fetch anything: vendor/ggml or WHISPYX_GGML_SOURCE must be there already.",
    ),
    Variable(
        "WHISPYX_BUILD_TYPE",
        "build_type",
        "release",
        "'release', 'debug' (symbols, asserts, bounds checks in Cython) or 'sanitize' (debug plus the address and "
        "undefined-behaviour sanitizers; start Python with LD_PRELOAD set to the compiler's libasan.so).",
    ),
)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _names(text: str, variable: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise BuildError(f"{variable} is set but names nothing: {text!r}. Unset it, or give a comma list of names.")
    return names


def _flag(text: str, variable: str) -> bool:
    if text in ("0", "1"):
        return text == "1"
    raise BuildError(f"{variable} must be 0 or 1, not {text!r}.")


@dataclass(frozen=True)
class BuildConfig:
    """Every choice of one build, checked as far as that needs no files but folders.

    Attributes
    ----------
    ggml_source : pathlib.Path or None
        A tree of the user's; None means the pinned one.
    backends, cpu_variants : tuple of str
        What was asked for, in the words of the user; `tools.build.plugins` turns it into targets.
    jobs : int
        Compilers side by side, at least 1.
    offline : bool
        Whether fetching is forbidden.
    build_type : str
        One of `BUILD_TYPES`.
    """

    ggml_source: Path | None = None
    backends: tuple[str, ...] = ("cpu",)
    cpu_variants: tuple[str, ...] = ("native",)
    jobs: int = 1
    offline: bool = False
    build_type: str = "release"

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> BuildConfig:
        """Read the variables; raise BuildError for a value that cannot be meant."""
        env = os.environ if env is None else env

        source = env.get("WHISPYX_GGML_SOURCE")
        if source is not None and not source.strip():
            raise BuildError("WHISPYX_GGML_SOURCE is set but empty. Unset it, or give the folder of a ggml tree.")
        jobs_text = env.get("WHISPYX_BUILD_JOBS", "")
        if jobs_text and (not jobs_text.isascii() or not jobs_text.isdigit() or not 1 <= int(jobs_text) <= 1024):
            raise BuildError(f"WHISPYX_BUILD_JOBS must be a whole number from 1 to 1024, not {jobs_text!r}.")
        build_type = env.get("WHISPYX_BUILD_TYPE", "release")
        if build_type not in BUILD_TYPES:
            raise BuildError(f"WHISPYX_BUILD_TYPE must be one of {', '.join(BUILD_TYPES)}, not {build_type!r}.")
        return cls(
            ggml_source=(ROOT / Path(source).expanduser()).resolve() if source else None,
            backends=_names(env.get("WHISPYX_BUILD_BACKENDS", "cpu"), "WHISPYX_BUILD_BACKENDS"),
            cpu_variants=_names(env.get("WHISPYX_CPU_VARIANTS", "native"), "WHISPYX_CPU_VARIANTS"),
            jobs=int(jobs_text) if jobs_text else _cores(),
            offline=_flag(env.get("WHISPYX_BUILD_OFFLINE", "0"), "WHISPYX_BUILD_OFFLINE"),
            build_type=build_type,
        )

    @property
    def debug(self) -> bool:
        """Whether asserts and symbols are kept."""
        return self.build_type != "release"

    def __str__(self) -> str:
        by_field = {variable.field: variable.name for variable in VARIABLES}
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            lines.append(f"{field.name:13} = {text:20} ({by_field[field.name]})")
        return "\n".join(lines)


def explain() -> str:
    """Return a text that describes every variable of the build."""
    parts = ["Environment variables of the build:"]
    for variable in VARIABLES:
        parts.append(f"\n{variable.name}  (default: {variable.default})\n    {variable.meaning}")
    return "\n".join(parts)
