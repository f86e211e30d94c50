"""What the user has ruled out: plugins, CPU variants other than the one named, models that stay in their files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whispyx.errors import ParamsError
from whispyx.plugins.discovery import Candidate

__all__ = [
    *("EXCLUDE_VARIABLE", "MMAP_VARIABLE", "VARIANT_VARIABLE"),
    *("Limits", "exclusions", "may_map", "variant", "variant_of"),
]

EXCLUDE_VARIABLE: Final = "WHISPYX_BACKEND_EXCLUDE"
VARIANT_VARIABLE: Final = "WHISPYX_CPU_VARIANT"
MMAP_VARIABLE: Final = "WHISPYX_MMAP"

NAME: Final = re.compile(r"[A-Za-z0-9_]+(-[A-Za-z0-9_.-]+)?")
TAG: Final = re.compile(r"[A-Za-z0-9_.-]+")
CPU: Final = "cpu"


@dataclass(frozen=True)
class Limits:
    """What the environment rules out.

    Attributes
    ----------
    names : frozenset of str
        Plugins ("vulkan") and variants of them ("cpu-zen4"), in lower case.
    paths : frozenset of str
        Real paths of files.
    variant : str
        The only CPU variant that may be loaded, in lower case; empty for the best one.
    """

    names: frozenset[str]
    paths: frozenset[str]
    variant: str

    @classmethod
    def from_env(cls) -> Limits:
        """Read the variables.

        Raises
        ------
        ParamsError
            An entry is neither a name nor an absolute path, or the variant is not a name.
        """
        names, paths = exclusions()
        return cls(names, paths, variant())

    def against(self, candidate: Candidate) -> str | None:
        """Return why `candidate` must not be loaded, or None when it may be."""
        full = f"{candidate.name}-{candidate.tag}".lower()
        if candidate.name in self.names or full in self.names or os.path.realpath(candidate.path) in self.paths:
            return f"{EXCLUDE_VARIABLE} rules it out"
        return None

    def passes(self, candidate: Candidate) -> bool:
        """Whether `candidate` is not a CPU variant other than the one that must be loaded."""
        return not self.variant or candidate.name != CPU or candidate.tag.lower() == self.variant


def exclusions() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names and real paths that ``WHISPYX_BACKEND_EXCLUDE`` rules out; ParamsError for what is neither."""
    names, paths = set(), set()
    for item in os.environ.get(EXCLUDE_VARIABLE, "").split(","):
        entry = item.strip()
        if not entry:
            continue
        if os.sep in entry:
            if not os.path.isabs(entry):
                raise ParamsError(f"{EXCLUDE_VARIABLE} names the relative path {entry!r}; write the whole path")
            paths.add(os.path.realpath(entry))
        elif NAME.fullmatch(entry):
            names.add(entry.lower())
        else:
            raise ParamsError(
                f"{EXCLUDE_VARIABLE} has the entry {entry!r}; an entry is a plugin ('vulkan'), a variant of one "
                "('cpu-zen4') or the absolute path of a plugin file"
            )
    return frozenset(names), frozenset(paths)


def variant() -> str:
    """Return what ``WHISPYX_CPU_VARIANT`` asks for, in lower case; ParamsError for what cannot be a variant."""
    value = os.environ.get(VARIANT_VARIABLE, "").strip()
    if value and not TAG.fullmatch(value):
        raise ParamsError(f"{VARIANT_VARIABLE} is {value!r}; it is the name of a CPU variant, such as 'haswell'")
    return value.lower()


def variant_of(path: str | Path) -> str:
    """Return the variant that a plugin's file is, for example "zen4"; empty when it has none."""
    name = Path(path).stem
    return name.split("-", 2)[2] if name.count("-") >= 2 else ""


def may_map() -> bool:
    """Return whether models may be used where they lie in their files: what ``WHISPYX_MMAP`` says, else yes.

    Raises
    ------
    ParamsError
        It is neither 0 nor 1.
    """
    value = os.environ.get(MMAP_VARIABLE, "").strip()
    if value not in ("", "0", "1"):
        raise ParamsError(f"{MMAP_VARIABLE} is {value!r}; it takes 0 (copy models into memory) or 1 (leave them there)")
    return value != "0"
