"""Loads plugins: the best file of each name, exactly once, and remembers what became of every other one."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Final

from whispyx._core import devices as table
from whispyx.errors import BackendError, BackendNotFoundError, BackendUnsupportedError
from whispyx.plugins import abi, discovery, endpoints, kernels, preload
from whispyx.plugins.discovery import Candidate, Discovery, Problem, Selection, SelectionLike, Wish
from whispyx.plugins.limits import VARIANT_VARIABLE, Limits
from whispyx.plugins.report import BY_HAND, EXCLUDED, LOADED, OUTSCORED, REFUSED, UNUSED, PluginRecord, Report

__all__ = ["add_server", "load", "registration", "report", "require_cpu", "resolve"]

log: Final = logging.getLogger("whispyx.plugins")

CPU: Final = "cpu"
NOT_USED: Final = (REFUSED, EXCLUDED)


@dataclass
class Entry:
    """What is known about one candidate."""

    candidate: Candidate
    library: abi.Library | None = None
    error: BackendError | None = None
    devices: tuple[table.Device, ...] = field(default=())
    excluded: str | None = None
    opened: list[str] = field(default_factory=list)

    def record(self, winner: Entry | None) -> PluginRecord:
        c, lib = self.candidate, self.library
        if self.devices:
            status, reason = LOADED, ""
        elif self.excluded is not None:
            status, reason = EXCLUDED, self.excluded
        elif self.error is not None:
            status, reason = REFUSED, str(self.error)
        elif winner is not None and lib is not None:
            status, reason = OUTSCORED, f"{winner.candidate.path} suits this machine better and is loaded instead"
        elif winner is not None:
            status, reason = UNUSED, f"{winner.candidate.path} is loaded under this name"
        else:
            status, reason = UNUSED, "it was not asked for"
        notes = list(self.opened)
        if lib is not None and lib.version is None:
            notes.append("ggml version not stated")
        if lib is not None and not lib.scored:
            notes.append("score not stated")
        return PluginRecord(
            path=c.path,
            name=c.name,
            tag=c.tag,
            source=c.source,
            status=status,
            score=lib.score if lib is not None and lib.scored else None,
            version=lib.version if lib is not None else None,
            reason=reason,
            notes=tuple(notes),
            devices=tuple(device.name for device in self.devices),
        )


class Registry:
    """The plugins of the process. One instance; every method holds its lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[tuple[str, str], Entry] = {}
        self._loaded: dict[str, Entry] = {}
        self._problems: dict[tuple[str, str], Problem] = {}
        self._searched: tuple[str, ...] = ()
        self._found = Discovery((), (), ())
        self._selected: tuple[str, ...] | None = None
        self._may_fall_back = True
        self._limits = Limits(frozenset(), frozenset(), "")

    def load(self, backend: SelectionLike | None) -> Report:
        selection = discovery.environment_selection() if backend is None else discovery.parse_selection(backend)
        limits = Limits.from_env()
        with self._lock:
            self._limits = limits
            self._require_not_excluded()
            if selection is None:
                self._load_all()
                self._selected = None
            else:
                self._selected = self._load_selection(selection)
            self._may_fall_back = selection is None or any(wish.name == CPU for wish in selection.wishes)
            return self.report()

    def report(self) -> Report:
        with self._lock:
            entries = sorted(self._entries.values(), key=lambda entry: entry.candidate.source not in BY_HAND)
            records = [entry.record(self._loaded.get(entry.candidate.name)) for entry in entries]
            records += [
                PluginRecord(p.place, p.name, "", p.source, REFUSED, reason=p.reason) for p in self._problems.values()
            ]
            return Report(
                found=tuple(records),
                selected=self._selected,
                searched=self._searched,
                ggml_version=table.ggml_version(),
                ggml_base=table.base_library(),
                may_fall_back=self._may_fall_back,
            )

    def require_cpu(self) -> None:
        with self._lock:
            self._require_cpu(self._found)

    # Nothing was selected: take what works, remember what does not.

    def _load_all(self) -> None:
        found = self._discover(None)
        # The CPU first: nothing works without it, so no other plugin may take the name of its device.
        self._load_any(CPU, found)
        self._require_variant(found)
        for name in dict.fromkeys(candidate.name for candidate in found.candidates):
            self._load_any(name, found)

    def _load_any(self, name: str, found: Discovery) -> None:
        """Load the best file of this name that works; one that has been refused before is not tried again."""
        if name in self._loaded:
            return
        entries = self._open_each(name, found)
        for entry in sorted((e for e in entries if e.error is None), key=_score, reverse=True):
            try:
                self._start(entry)
                return
            except BackendError:
                log.info("plugin %r (%s) is refused: %s", name, entry.candidate.path, entry.error)

    # Something was selected: exactly that, or an error.

    def _load_selection(self, selection: Selection) -> tuple[str, ...]:
        files = [discovery.file_candidate(w.path, selection.origin) for w in selection.wishes if w.path is not None]
        for candidate in files:
            self._entries.setdefault(candidate.key, Entry(candidate))
        kinds = any(wish.is_kind for wish in selection.wishes)
        found = self._discover(None if kinds else frozenset(wish.name for wish in selection.wishes) | {CPU})
        for candidate in files:
            self._load_file(candidate)
        self._load_any(CPU, found)
        if not any(candidate.name == CPU for candidate in files):
            self._require_variant(found)
        self._require_cpu(found)
        for wish in selection.wishes:
            known = self._plugin_called(wish.name, found) or wish.path is not None or _is_device(wish.text)
            if not known and (wish.is_kind or wish.text[-1:].isdigit()):
                # A kind of device, or perhaps the name of a device ("Vulkan1"): any plugin may have it.
                found = self._discover(None)
                for name in dict.fromkeys(candidate.name for candidate in found.candidates):
                    self._load_any(name, found)
            if wish.is_kind and not self._plugin_called(wish.name, found):
                continue
            if wish.path is None and wish.name not in self._loaded and not _is_device(wish.text):
                self._load_named(wish, selection, found)
        names = [self._device(wish, selection) for wish in selection.wishes]
        return tuple(device.name for device in table.select(names=names))

    def _load_file(self, candidate: Candidate) -> None:
        entry = self._entries[candidate.key]
        loaded = self._loaded.get(candidate.name)
        if loaded is entry:
            return
        if entry.excluded is not None:
            raise _named(BackendError(entry.excluded), candidate)
        if loaded is not None:
            raise BackendError(
                f"plugin {candidate.name!r} is already loaded from {loaded.candidate.path} and a process can hold only "
                f"one file of a name; choose {candidate.path} before the first model is made, for example with "
                f"{discovery.BACKEND_VARIABLE}"
            )
        self._open(entry, again=True)
        if entry.error is not None:
            raise _named(entry.error, candidate)
        try:
            self._start(entry)
        except BackendError as error:
            raise _named(error, candidate) from error

    def _load_named(self, wish: Wish, selection: Selection, found: Discovery) -> None:
        for problem in found.problems:
            if problem.name == wish.name:
                raise BackendError(f"plugin {wish.name!r} ({problem.source}, {problem.place}): {problem.reason}")
        entries = self._open_each(wish.name, found, again=True)
        if not entries:
            for candidate in found.candidates:
                reason = self._entries[candidate.key].excluded
                if candidate.name == wish.name and reason is not None:
                    raise _named(BackendError(reason), candidate)
            raise BackendNotFoundError(
                f"{selection.origin} asks for {wish.text!r}, but there is no plugin and no device of that name; "
                f"{_way_to(wish.name)}{_known(found)}"
            )
        for entry in entries:
            # A variant that is sound but for another machine is what variants are for; any other failure is an error.
            if entry.error is not None and (entry.library is None or entry.library.score > 0):
                raise _named(entry.error, entry.candidate)
        usable = [entry for entry in entries if entry.error is None]
        if not usable:
            error = entries[0].error
            assert error is not None
            raise _named(error, entries[0].candidate)
        best = max(usable, key=_score)
        try:
            self._start(best)
        except BackendError as error:
            raise _named(error, best.candidate) from error

    def _require_cpu(self, found: Discovery) -> None:
        if CPU in self._loaded:
            return
        entries = (self._entries[candidate.key] for candidate in found.candidates if candidate.name == CPU)
        reasons = [f"{entry.candidate.path}: {entry.excluded or entry.error or 'not asked for'}" for entry in entries]
        raise BackendNotFoundError(
            f"no CPU plugin could be loaded, and every model needs one; {'; '.join(reasons) or _known(found)}"
        )

    def _require_variant(self, found: Discovery) -> None:
        """Raise unless the CPU plugin in use is the variant that was named."""
        wanted = self._limits.variant
        if not wanted:
            return
        loaded = self._loaded.get(CPU)
        if loaded is not None:
            if loaded.candidate.tag.lower() != wanted:
                raise BackendError(
                    f"{VARIANT_VARIABLE} asks for {wanted!r}, but the CPU plugin that this process uses is "
                    f"{loaded.candidate.path}; set the variable before the first model is made"
                )
            return
        mine = [candidate for candidate in found.candidates if candidate.name == CPU]
        for candidate in mine:
            entry = self._entries[candidate.key]
            if candidate.tag.lower() == wanted:
                raise _named(entry.error or BackendError(entry.excluded or "it could not be loaded"), candidate)
        known = ", ".join(sorted({candidate.tag for candidate in mine if candidate.tag})) or "none"
        raise BackendNotFoundError(
            f"{VARIANT_VARIABLE} asks for the CPU variant {wanted!r}, which is not installed; there are: {known}"
        )

    def _require_not_excluded(self) -> None:
        """Raise when something has been ruled out after it was loaded: plugins are never unloaded."""
        for entry in self._loaded.values():
            reason = self._limits.against(entry.candidate)
            if reason is not None:
                raise BackendError(
                    f"{reason}, but plugin {entry.candidate.name!r} ({entry.candidate.path}) is loaded already; set "
                    "the variable before the first model is made"
                )

    def _plugin_called(self, name: str, found: Discovery) -> bool:
        return name in self._loaded or any(candidate.name == name for candidate in found.candidates)

    def _device_of_kind(self, wish: Wish, selection: Selection) -> str:
        kinds = ("GPU", "IGPU") if wish.name == "gpu" else (wish.name.upper(),)
        devices = [device for kind in kinds for device in table.devices() if device.kind == kind]
        if wish.index < len(devices):
            return devices[wish.index].name
        asked = f"{selection.origin} asks for {wish.text!r}, a device of kind {' or '.join(kinds)}"
        if devices:
            raise BackendNotFoundError(f"{asked}, but those are only: {', '.join(device.name for device in devices)}")
        seen = [f"{device.name} of plugin {device.backend!r} is of kind {device.kind}" for device in table.devices()]
        not_used = (record for record in self.report().found if record.status in NOT_USED)
        seen += [f"plugin {record.name!r} is {record.status}: {record.reason}" for record in not_used]
        raise BackendNotFoundError(
            f"{asked}, but no plugin offers one. Looked at: {'; '.join(seen)}. Searched: {', '.join(self._searched)}. "
            "`whispyx backends list` shows which plugins can be built"
        )

    def _device(self, wish: Wish, selection: Selection) -> str:
        """Return the name of the device that a wish means."""
        entry = self._loaded.get(wish.name)
        if entry is None and wish.is_kind and not _is_device(wish.text):
            return self._device_of_kind(wish, selection)
        if entry is None:
            return wish.text
        if wish.index >= len(entry.devices):
            names = ", ".join(f"{wish.name}:{d.index} ({d.name})" for d in entry.devices)
            raise BackendNotFoundError(
                f"{selection.origin} asks for {wish.text!r}, but the devices of plugin {wish.name!r} are: {names}"
            )
        return entry.devices[wish.index].name

    # The steps of one file.

    def _discover(self, only: frozenset[str] | None) -> Discovery:
        found = discovery.discover(only)
        for candidate in found.candidates:
            self._entries.setdefault(candidate.key, Entry(candidate))
        for entry in self._entries.values():
            entry.excluded = None if entry.devices else self._limits.against(entry.candidate)
        for problem in found.problems:
            if (problem.place, problem.reason) not in self._problems:
                log.info("%s (%s): %s", problem.place, problem.source, problem.reason)
        self._problems = {(p.place, p.reason): p for p in found.problems}
        self._searched = found.searched
        self._found = found
        return found

    def _open_each(self, name: str, found: Discovery, again: bool = False) -> list[Entry]:
        mine = [
            candidate for candidate in found.candidates if candidate.name == name and self._limits.passes(candidate)
        ]
        entries = [entry for candidate in mine if (entry := self._entries[candidate.key]).excluded is None]
        for entry in entries:
            self._open(entry, again)
        return entries

    def _open(self, entry: Entry, again: bool) -> None:
        if again and entry.library is not None and entry.candidate.name == endpoints.PLUGIN:
            entry.error = None  # a server may have come up since
        if entry.library is not None or (entry.error is not None and not again):
            return
        entry.error = None
        entry.opened = preload.for_plugin(entry.candidate.name, entry.candidate.path)
        try:
            entry.library = abi.open_plugin(entry.candidate.path)
            log.debug("opened %s, score %d", entry.candidate.path, entry.library.score)
            if entry.library.score <= 0:
                raise BackendUnsupportedError("it does not support this machine (its score is 0)")
        except BackendError as error:
            entry.error = error
            log.info("plugin %r (%s) is refused: %s", entry.candidate.name, entry.candidate.path, error)

    def _start(self, entry: Entry) -> None:
        """Initialise the backend and put its devices into the table. The only place where a backend starts."""
        candidate, library = entry.candidate, entry.library
        assert library is not None
        try:
            if candidate.name == endpoints.PLUGIN:
                devices = endpoints.start(library.init(), candidate.path)
            else:
                devices = table.register_backend(library.init(), candidate.name, candidate.path)
            if devices[0].backend != candidate.name:
                raise BackendError(f"it is the same library as plugin {devices[0].backend!r}, which is already loaded")
        except BackendError as error:
            entry.error = error
            raise
        entry.error = None
        entry.devices = devices
        self._loaded[candidate.name] = entry
        log.info("loaded plugin %r from %s: %s", candidate.name, candidate.path, ", ".join(d.name for d in devices))

    # A plugin whose devices come one by one.

    def add_server(self, endpoint: str) -> tuple[str, ...]:
        with self._lock:
            entry, address = self.registration(endpoints.PLUGIN)
            path = entry.candidate.path
            devices = table.register_backend(
                endpoints.connect(address, endpoint), endpoints.PLUGIN, path, len(entry.devices)
            )
            entry.devices += tuple(device for device in devices if device not in entry.devices)
            entry.error = None
            self._loaded[endpoints.PLUGIN] = entry
            return tuple(device.name for device in devices)

    def registration(self, name: str) -> tuple[Entry, int]:
        """Start the best file of a plugin, without its devices, and return its registration."""
        limits = Limits.from_env()
        with self._lock:
            self._limits = limits
            entry = self._loaded.get(name)
            if entry is None:
                found = self._discover(frozenset({name}))
                entries = self._open_each(name, found, again=True)
                usable = [entry for entry in entries if entry.error is None]
                if not usable:
                    for entry in entries:
                        if entry.error is not None:
                            raise _named(entry.error, entry.candidate)
                    excluded = (self._entries[c.key].excluded for c in found.candidates if c.name == name)
                    reason = next(filter(None, excluded), _known(found))
                    raise BackendNotFoundError(f"there is no plugin {name!r} to be used: {reason}")
                entry = max(usable, key=_score)
            assert entry.library is not None
            try:
                return entry, entry.library.init()
            except BackendError as error:
                raise _named(error, entry.candidate) from error


def _score(entry: Entry) -> int:
    return entry.library.score if entry.library is not None else 0


def _is_device(text: str) -> bool:
    return any(device.name.casefold() == text.casefold() for device in table.devices())


def _named(error: BackendError, candidate: Candidate) -> BackendError:
    return type(error)(f"plugin {candidate.name!r} ({candidate.path}) cannot be used: {error.args[0]}", log=error.log)


def _way_to(name: str) -> str:
    """Return how a backend that we know of can be had; empty for any other name."""
    from whispyx.plugins import manifest  # only for what it helps to say

    try:
        root = manifest.kit_root()
        if name not in manifest.names(root):
            return ""
        known = manifest.read(manifest.path_of(name, root))
    except manifest.ManifestError:
        return ""
    if known.kind == "ENCODER":
        return f"{name} computes Whisper's encoder alone and is chosen as such (encoder={name!r}, WHISPYX_ENCODER); "
    return f"`whispyx backends build {name}` makes it; "


def _known(found: Discovery) -> str:
    names = sorted({candidate.name for candidate in found.candidates})
    text = f"plugins found: {', '.join(names) or 'none'}; searched: {', '.join(found.searched)}"
    missing = [f"{p.place} ({p.reason})" for p in found.problems]
    return f"{text}; not searched: {', '.join(missing)}" if missing else text


_registry: Final = Registry()


def load(backend: SelectionLike | None = None) -> Report:
    """Load compute backends, and say what is loaded.

    Calling it again is cheap and loads only what is missing. Plugins are never unloaded. Threads may call it at once.

    Parameters
    ----------
    backend : str, path or sequence of them, optional
        What to use, best first: plugin names ("vulkan", which means its first device), devices of a plugin
        ("vulkan:1"), names of devices that are already known ("Vulkan1"), or absolute paths of plugin files. A string
        may hold several, separated by commas. The CPU is always added, as the last.
        None: what the environment variable ``WHISPYX_BACKEND`` says, and if it is unset or blank, every plugin that is
        found and works.

    Returns
    -------
    Report
        Its `selected` names the devices that the selection means.

    Raises
    ------
    BackendError
        With a selection: something in it cannot be used. The message names the plugin and the reason. Without a
        selection no plugin's failure is an error; `Report.refused` lists them.
    ParamsError
        The selection is malformed, or ``WHISPYX_BACKEND_PATH`` holds a relative folder.
    """
    kernels.load()
    return _registry.load(backend)


def require_cpu() -> None:
    """Raise where `load` found no CPU plugin that works, though every model needs one.

    Raises
    ------
    BackendNotFoundError
        The message names every CPU plugin that was found, and why it was not loaded.
    """
    _registry.require_cpu()


def report() -> Report:
    """Return what has been found, loaded and refused so far, without loading anything."""
    return _registry.report()


def resolve(backend: SelectionLike | None = None) -> tuple[str, ...] | None:
    """Load what a selection needs and return the names of its devices, best first, the CPU last.

    None means that nothing is selected (no argument, ``WHISPYX_BACKEND`` unset): every plugin is loaded then, and the
    caller's own rule decides. Raises as `load` does.
    """
    return _registry.load(backend).selected


def add_server(endpoint: str) -> tuple[str, ...]:
    """Add the devices of a server (see `whispyx.plugins.rpc.add_server`)."""
    return _registry.add_server(endpoint)


def registration(name: str) -> int:
    """Return the registration of a plugin whose devices are not wanted."""
    return _registry.registration(name)[1]
