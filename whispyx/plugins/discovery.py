"""Which plugin files there are, and which of them the user asked for. Nothing is opened here.

Places, in this order: files named in a selection, the folders of ``WHISPYX_BACKEND_PATH``, Python packages with an
entry point in the group ``whispyx.backends``, the user's own folder, the folder inside the package. Every path is
absolute: neither the working directory nor the folder of the interpreter is ever searched.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Union

from whispyx._core.base import ggml_version
from whispyx.errors import ParamsError
from whispyx.plugins import entries

if TYPE_CHECKING:
    from importlib import metadata

__all__ = [
    "ARGUMENT",
    "BACKEND_VARIABLE",
    "ENTRY_POINT_GROUP",
    "PATH_VARIABLE",
    "Candidate",
    "Discovery",
    "Problem",
    "Selection",
    "Wish",
    "discover",
    "environment_selection",
    "file_candidate",
    "package_folder",
    "parse_selection",
    "user_folder",
]

BACKEND_VARIABLE: Final = "WHISPYX_BACKEND"
PATH_VARIABLE: Final = "WHISPYX_BACKEND_PATH"
HOME_VARIABLE: Final = "WHISPYX_PLUGIN_HOME"
ARGUMENT: Final = "backend"
"""What messages and reports call a selection that was given as an argument."""
ENTRY_POINT_GROUP: Final = "whispyx.backends"

FILE_NAME: Final = re.compile(r"libggml-(?P<name>[A-Za-z0-9_]+)(-(?P<tag>[A-Za-z0-9_.-]+))?\.so")
NAME: Final = re.compile(r"(?P<name>[A-Za-z0-9_]+)(:(?P<index>[0-9]{1,4}))?")
KINDS: Final = frozenset({"gpu", "igpu", "accel"})
"""What may be asked for instead of a plugin: the best device of that kind, whoever offers it."""
# Upstream's base library has a name of the same shape as a plugin's.
NOT_PLUGINS: Final = frozenset({"base"})

SelectionLike = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


@dataclass(frozen=True)
class Candidate:
    """A file whose name says that it is a plugin.

    Attributes
    ----------
    path : str
        Absolute path.
    name : str
        What users call the plugin, in lower case ("cpu", "vulkan").
    tag : str
        Tells variants of one plugin apart ("zen4"); empty when there is no need to.
    source : str
        Who named the file.
    """

    path: str
    name: str
    tag: str
    source: str

    @property
    def key(self) -> tuple[str, str]:
        """The same file found twice under the same name is one candidate."""
        return (os.path.realpath(self.path), self.name)


@dataclass(frozen=True)
class Problem:
    """A place that could not be searched."""

    place: str
    name: str
    source: str
    reason: str


@dataclass(frozen=True)
class Discovery:
    """What a search found: candidates in order of precedence, the places searched, and what went wrong."""

    candidates: tuple[Candidate, ...]
    searched: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Wish:
    """One entry of a selection: the file at `path`, or the plugin or device called `name`."""

    text: str
    name: str
    index: int = 0
    path: str | None = None

    @property
    def is_kind(self) -> bool:
        """Whether a kind of device is asked for instead of a plugin."""
        return self.path is None and self.name in KINDS


@dataclass(frozen=True)
class Selection:
    """What the user asked for, best first, and where (for messages)."""

    wishes: tuple[Wish, ...]
    origin: str


def parse_selection(value: SelectionLike, origin: str = ARGUMENT) -> Selection:
    """Read a selection: a comma-separated string, or a sequence with one entry per item.

    Raises
    ------
    ParamsError
        The selection is empty, an entry is, or an entry is a relative path or malformed.
    """
    if isinstance(value, str):
        items: list[Any] = list(value.split(","))
    elif isinstance(value, os.PathLike):
        items = [value]
    elif isinstance(value, Sequence) and type(value) not in (bytes, bytearray, memoryview):
        items = list(value)
    else:
        raise ParamsError(f"{origin} is a {type(value).__name__}; give a str, a path, or a sequence of them")
    items = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items]
    for item in items:
        if not isinstance(item, str):
            raise ParamsError(f"{origin} holds a {type(item).__name__}; every entry is a str or a path")
    if not any(item.strip() for item in items):
        raise ParamsError(f"{origin} is empty; name a plugin (for example 'cpu'), or leave it out to use what is found")
    return Selection(tuple(_wish(item.strip(), origin) for item in items), origin)


def _wish(text: str, origin: str) -> Wish:
    if not text:
        raise ParamsError(
            f"{origin} has an empty entry; write names separated by single commas, for example 'blas,cpu'"
        )
    if "\0" in text:
        raise ParamsError(f"{origin} has the entry {text!r}; neither names nor paths hold a null character")
    if os.sep in text or text.startswith("~") or text.endswith(".so"):
        path = _expand(text)
        if not path.is_absolute():
            raise ParamsError(
                f"{origin} names the relative path {text!r}; plugins are opened by absolute path only, "
                "so write the whole path"
            )
        candidate = file_candidate(path, origin)
        return Wish(text, candidate.name, path=candidate.path)
    match = NAME.fullmatch(text)
    if match is None:
        raise ParamsError(
            f"{origin} has the entry {text!r}; an entry is a plugin ('vulkan'), a device of it ('vulkan:0') "
            "or the absolute path of a plugin file"
        )
    return Wish(text, match["name"].lower(), index=int(match["index"] or 0))


def _expand(text: str) -> Path:
    """Replace a leading ~; one that cannot be replaced stays, and the path is then refused as a relative one."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def file_candidate(path: str | Path, source: str) -> Candidate:
    """Return the candidate for a file that was named by hand.

    Raises
    ------
    ParamsError
        The file's name does not have the shape of a plugin's name.
    """
    found = _candidate(Path(path), source)
    if found is None:
        raise ParamsError(
            f"{source} names {str(path)!r}; a plugin file is called libggml-NAME.so or libggml-NAME-TAG.so, where NAME "
            "is what users call the plugin"
        )
    return found


def _candidate(path: Path, source: str) -> Candidate | None:
    match = FILE_NAME.fullmatch(path.name)
    if match is None or match["name"].lower() in NOT_PLUGINS:
        return None
    return Candidate(str(path), match["name"].lower(), match["tag"] or "", source)


def environment_selection() -> Selection | None:
    """Return what ``WHISPYX_BACKEND`` asks for; a blank value counts as unset, as shells mean it."""
    value = os.environ.get(BACKEND_VARIABLE, "")
    return parse_selection(value, BACKEND_VARIABLE) if value.strip() else None


def extra_folders() -> list[Path]:
    """Return the folders of ``WHISPYX_BACKEND_PATH``. Empty entries do not mean the working directory, but nothing."""
    folders = []
    for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep):
        if not entry.strip():
            continue
        folder = _expand(entry.strip())
        if not folder.is_absolute():
            raise ParamsError(
                f"{PATH_VARIABLE} names the relative folder {entry!r}; plugins are searched in absolute folders only, "
                "so write the whole path"
            )
        folders.append(folder)
    return folders


def package_folder() -> Path:
    """Return the folder of the plugins that were built with whispyx."""
    return Path(__file__).resolve().parent.parent / "_native" / "plugins"


def user_folder() -> Path:
    """Return the folder of the plugins that this user has built, for the ggml of this process. It need not exist.

    Raises
    ------
    ParamsError
        ``WHISPYX_PLUGIN_HOME`` holds a relative path.
    """
    value = os.environ.get(HOME_VARIABLE, "").strip()
    if value:
        home = _expand(value)
        if not home.is_absolute():
            raise ParamsError(f"{HOME_VARIABLE} is the relative path {value!r}; write the whole path")
    else:
        home = _data_folder() / "plugins"
    return home / f"ggml-{ggml_version()}"


def _data_folder() -> Path:
    """Return `platformdirs.user_data_path` for whispyx; where that is sure to be this line, without importing it."""
    if sys.platform == "linux" and not {"XDG_DATA_HOME", "ANDROID_ROOT", "ANDROID_DATA"} & os.environ.keys():
        return Path(os.path.expanduser("~/.local/share/whispyx"))
    from platformdirs import user_data_path

    return user_data_path("whispyx", appauthor=False)


def discover(only: frozenset[str] | None = None) -> Discovery:
    """Look into every place.

    Parameters
    ----------
    only : frozenset of str, optional
        Names that matter; packages that offer other plugins through an entry point are not imported.
    """
    candidates: list[Candidate] = []
    problems: list[Problem] = []
    searched: list[str] = []
    for folder in extra_folders():
        _scan(folder, PATH_VARIABLE, candidates, problems)
        searched.append(str(folder))
    for entry in entries.of_group(ENTRY_POINT_GROUP):
        if only is None or entry.name.lower() in only:
            _ask(entry, candidates, problems)
        searched.append(f"entry point {entry.name} ({entry.value})")
    mine = user_folder()
    if os.path.isdir(mine):  # nobody has one who has built no plugin
        _scan(mine, "user", candidates, problems)
        searched.append(str(mine))
    _scan(package_folder(), "package", candidates, problems)
    searched.append(str(package_folder()))
    unique = {candidate.key: candidate for candidate in reversed(candidates)}
    return Discovery(tuple(reversed(unique.values())), tuple(searched), tuple(problems))


def _scan(folder: Path, source: str, candidates: list[Candidate], problems: list[Problem]) -> None:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        reason = f"the folder cannot be searched: {error.strerror or error}"
        if source == "package":
            reason += "; this whispyx was built without plugins"
        problems.append(Problem(str(folder), "", source, reason))
        return
    for path in paths:
        found = _candidate(path, source)
        if found is not None:
            candidates.append(found)


def _ask(entry: metadata.EntryPoint, candidates: list[Candidate], problems: list[Problem]) -> None:
    """Add what an entry point offers. It runs code of another package, so anything may go wrong in it."""
    source = f"entry point {entry.name}"
    try:
        value = entry.load()
        paths = _paths(value() if callable(value) else value)
    except Exception as error:
        problems.append(Problem(entry.value, entry.name.lower(), source, f"it failed with {error!r}"))
        return
    for path in paths:
        found = _candidate(Path(path), source) if Path(path).is_absolute() else None
        if found is None or found.name != entry.name.lower():
            reason = f"it must offer absolute paths of files called libggml-{entry.name}[-TAG].so, not {path!r}"
            problems.append(Problem(entry.value, entry.name.lower(), source, reason))
        else:
            candidates.append(found)


def _paths(value: Any) -> list[str]:
    items: Iterable[Any] = [value] if isinstance(value, (str, os.PathLike)) else value
    paths = []
    for item in items:
        path = os.fspath(item)
        if not isinstance(path, str) or "\0" in path:
            raise TypeError(f"a path is a str without null characters, not {path!r}")
        paths.append(path)
    return paths
