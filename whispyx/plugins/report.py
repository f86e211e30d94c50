"""What the registry knows, as frozen records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from whispyx.fallback import Fallback

__all__ = ["EXCLUDED", "LOADED", "OUTSCORED", "REFUSED", "UNUSED", "PluginRecord", "Report"]

LOADED: Final = "loaded"
REFUSED: Final = "refused"
OUTSCORED: Final = "outscored"
UNUSED: Final = "unused"
EXCLUDED: Final = "excluded"

BY_HAND: Final = ("WHISPYX_BACKEND", "backend")
"""Sources of files that a selection names."""


@dataclass(frozen=True)
class PluginRecord:
    """One plugin file, or one place that could not be searched.

    Attributes
    ----------
    path : str
        The file, or the place.
    name, tag : str
        From the file's name; `name` is empty for a folder.
    source : str
        Who named the file: "backend" (an argument), "WHISPYX_BACKEND", "WHISPYX_BACKEND_PATH", "entry point …", "user"
        (built with ``whispyx backends build``) or "package".
    status : str
        "loaded"; "refused": it cannot be used, `reason` says why; "outscored": a better file of that name is loaded;
        "unused": not opened, since it was not asked for; "excluded": the user has ruled it out.
    score : int or None
        What the plugin says about itself on this machine, larger is better, 0 is unsupported; None when it does not
        say or was not asked.
    version : str or None
        The ggml it was built from; None when it does not say or was not asked.
    reason : str
        One sentence, empty when the plugin is loaded.
    notes : tuple of str
        What is worth knowing about a plugin that is accepted.
    devices : tuple of str
        Names of its devices, in its own order.
    """

    path: str
    name: str
    tag: str
    source: str
    status: str
    score: int | None = None
    version: str | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The state of the registry at one moment.

    Attributes
    ----------
    found : tuple of PluginRecord
        Every candidate of the last search and everything that was opened before, in order of precedence.
    selected : tuple of str or None
        Device names that the selection of this call means, best first, the CPU last; None when nothing was selected.
    searched : tuple of str
        The places searched, in order.
    ggml_version, ggml_base : str
        Version and path of the ggml base library of this process.
    may_fall_back : bool
        Whether the CPU may do all the work when a device has no room for it: nothing was selected, or the selection
        itself names the CPU.
    """

    found: tuple[PluginRecord, ...]
    selected: tuple[str, ...] | None
    searched: tuple[str, ...]
    ggml_version: str
    ggml_base: str
    may_fall_back: bool = True

    @property
    def loaded(self) -> tuple[PluginRecord, ...]:
        """The plugins in use."""
        return tuple(record for record in self.found if record.status == LOADED)

    @property
    def refused(self) -> tuple[PluginRecord, ...]:
        """The plugins that cannot be used, and the places that cannot be searched."""
        return tuple(record for record in self.found if record.status == REFUSED)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The plugins that are not used though nobody ruled them out, where nothing was selected."""
        if self.selected is not None:
            return ()
        # What was once named by hand and failed has told its user so.
        refused = (
            record
            for record in self.refused
            if record.name and record.name not in self._loaded_names and record.source not in BY_HAND
        )
        return tuple(Fallback(record.name, "CPU", record.reason) for record in refused)

    @property
    def _loaded_names(self) -> frozenset[str]:
        return frozenset(record.name for record in self.loaded)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain lists and dicts."""
        return dataclasses.asdict(self)
