"""Opens libraries that a plugin is linked to and that lie inside of Python packages, where no linker looks.

`run.preload` of a plugin.toml names them as package/path. The package is found and not imported. A library that has
been opened answers when the linker later looks for its name on behalf of the plugin, and for nobody else: its own names
stay hidden.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from whispyx.errors import BackendLoadError
from whispyx.plugins import abi, elf

__all__ = ["find", "for_plugin"]


def for_plugin(name: str, path: str) -> list[str]:
    """Open what the plugin `name` in the file `path` is linked to, as far as its manifest says where that lies.

    Nothing is opened that the file does not ask for, or that lies beside the file: the plugin finds it there by itself.

    Returns
    -------
    list of str
        What is worth telling: what was opened from where, or what was not found. Whether that matters, the linker says.
    """
    if _surely_nothing(name):
        return []
    from whispyx.plugins import manifest

    try:
        root = manifest.kit_root()
        if name not in manifest.names(root):
            return []
        entries = manifest.read(manifest.path_of(name, root)).run.preload
        needed = elf.inspect(path).needed if entries else ()
    except manifest.ManifestError as error:
        return [str(error)]
    except BackendLoadError:
        return []  # whoever opens the file says the same better
    wanted = {entry: Path(entry).name for entry in entries}
    if not any(file in needed for file in wanted.values()):
        return []
    notes = []
    for entry, file in wanted.items():
        if Path(path).with_name(file).exists():
            continue
        found = find(entry)
        if found is None:
            package = entry.partition("/")[0]
            notes.append(f"the Python package {package} with {file} is not here; the system's linker looks for it")
            continue
        try:
            abi.open_dependency(str(found))
        except BackendLoadError as error:
            notes.append(f"{found} cannot be opened: {error}")
        else:
            notes.append(f"{file} comes from {found.parent}")
    return notes


def _surely_nothing(name: str) -> bool:
    """Whether the manifest has no such entry, as a glance tells that costs less than its reader."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_native" / "kit", package.parent):
        try:
            return b"preload" not in (root / "backends" / name / "plugin.toml").read_bytes()
        except OSError:
            continue
    return False


def find(entry: str) -> Path | None:
    """Return where the file of a package (as package/path) lies, without importing the package; None: it does not."""
    package, _, rest = entry.partition("/")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():  # a namespace package has several
        found = Path(place).resolve() / rest
        if found.is_file():
            return found
    return None
