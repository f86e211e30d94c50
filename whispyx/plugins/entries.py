"""Entry points of a group, without the machinery for them where no installed package has any.

Reading the metadata of every package takes longer than loading the plugins does, and hardly anybody has packages with
plugins. So the files themselves are looked at first.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["of_group"]


def of_group(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, sorted by name."""
    if not _may_exist(group):
        return []
    from importlib import metadata

    return sorted(metadata.entry_points(group=group), key=lambda entry: entry.name)


def _may_exist(group: str) -> bool:
    """Whether an installed package mentions the group; yes where that cannot be told from files."""
    for finder in sys.meta_path:
        if finder is not PathFinder and hasattr(finder, "find_distributions"):
            return True
    return any(_mentions(place or os.curdir, group.encode()) for place in sys.path)


def _mentions(place: str, group: bytes) -> bool:
    try:
        names = os.listdir(place)
    except OSError:
        return os.path.isfile(place)  # a zip archive; a folder that is not there offers nothing
    if place.lower().endswith(".egg"):
        return True
    for name in names:
        if name.lower().endswith(".egg"):
            return True
        if not name.lower().endswith((".dist-info", ".egg-info")):
            continue
        try:
            with open(os.path.join(place, name, "entry_points.txt"), "rb") as file:
                if group in file.read():
                    return True
        except OSError:  # most packages have none
            continue
    return False
