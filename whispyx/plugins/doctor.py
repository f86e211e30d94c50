"""Every plugin that is found, each in a process of its own: does it load, and are its devices right?

A plugin that crashes, hangs, leaves the process or computes wrong numbers harms only its child. `examine` returns what
it found as records; ``whispyx doctor`` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from whispyx.errors import BackendUnsupportedError
from whispyx.plugins.children import Ending, Message, work
from whispyx.plugins.conformance import default_threads
from whispyx.plugins.discovery import BACKEND_VARIABLE
from whispyx.plugins.limits import EXCLUDE_VARIABLE, VARIANT_VARIABLE, exclusions
from whispyx.plugins.variables import malformed

__all__ = ["DeviceCheck", "Diagnosis", "Examination", "Program", "examine"]

SECONDS: Final = 60.0  # for one answer of a plugin

SOUND: Final = "sound"
EXCLUDED: Final = "excluded"
UNSUITABLE: Final = "unsuitable"
REFUSED: Final = "refused"
CRASHES: Final = "crashes"
LEAVES: Final = "leaves"
HANGS: Final = "hangs"
LIES: Final = "lies"
FAILS: Final = "fails"
CRASHES_LATE: Final = "crashes late"

HARMFUL: Final = (CRASHES, LEAVES, HANGS, LIES, FAILS)
HARMLESS: Final = (SOUND, EXCLUDED, UNSUITABLE)

_FROM_ENDING: Final = {"signal": CRASHES, "exit": LEAVES, "hang": HANGS, "late crash": CRASHES_LATE}


@dataclass(frozen=True)
class DeviceCheck:
    """A device and what became of the jobs it was given.

    Attributes
    ----------
    right, unsupported : int
        Jobs whose result is that of the CPU, and jobs that the device leaves to others.
    faults : tuple of str
        One sentence for each job that went wrong, or for a start that failed.
    worst : float
        Largest error, as a part of what is allowed.
    """

    name: str
    kind: str
    index: int
    description: str
    memory_free: int
    memory_total: int
    features: dict[str, str]
    right: int = 0
    unsupported: int = 0
    lies: bool = False
    faults: tuple[str, ...] = ()
    worst: float = 0.0


@dataclass(frozen=True)
class Examination:
    """A plugin file and what was found out about it.

    Attributes
    ----------
    path, name, tag, source : str
        As in `whispyx.plugins.PluginRecord`.
    status : str
        "sound"; "excluded": the user rules it out, so it was not opened; "unsuitable": it is for another machine, or
        finds no device here; "refused": it cannot be loaded; "crashes", "leaves" (it ends the process), "hangs",
        "fails" (a computation), "lies" (wrong numbers); "crashes late": everything worked, and then the process died
        at its end.
    reason : str
        One sentence, empty for what is sound.
    printed : str
        The end of what the plugin printed, where it did harm.
    """

    path: str
    name: str
    tag: str
    source: str
    status: str = SOUND
    reason: str = ""
    score: int | None = None
    version: str | None = None
    notes: tuple[str, ...] = ()
    devices: tuple[DeviceCheck, ...] = ()
    printed: str = ""

    @property
    def label(self) -> str:
        """The plugin's name, with the variant where there is one: what ``WHISPYX_BACKEND_EXCLUDE`` takes."""
        return f"{self.name}-{self.tag}" if self.tag else self.name


@dataclass(frozen=True)
class Program:
    """What a program gets that loads plugins with the variables that are in force, or with some more exclusions.

    Attributes
    ----------
    works : bool
    text : str
        Why not.
    devices : tuple of str
        What a model computes on by default or by the selection, best first.
    """

    works: bool
    text: str = ""
    devices: tuple[str, ...] = ()
    selected: bool = False
    all_devices: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was found.

    Attributes
    ----------
    plugins : tuple of Examination
        In order of precedence.
    searched : tuple of str
        Places, in order.
    problems : tuple of str
        Places that could not be searched, one sentence each.
    program : Program
        With the variables as they are.
    exclude : str
        Value of ``WHISPYX_BACKEND_EXCLUDE`` that leaves every harmful plugin out; empty when there is none.
    without : Program or None
        What a program gets with that value; None when there is no harmful plugin.
    malformed : dict
        Variables that cannot be understood, and why. Plugins were looked for and tried as if those were not set; the
        program has them.
    """

    plugins: tuple[Examination, ...]
    searched: tuple[str, ...]
    problems: tuple[str, ...]
    program: Program
    exclude: str = ""
    without: Program | None = None
    malformed: dict[str, str] = field(default_factory=dict)

    @property
    def harmful(self) -> tuple[Examination, ...]:
        """Plugins that do harm: they take the process with them, or compute wrong numbers."""
        return tuple(plugin for plugin in self.plugins if plugin.status in HARMFUL)

    @property
    def ok(self) -> bool:
        """Whether a program works, and nothing that was found is wrong."""
        sound = self.program.works and not self.problems and not self.malformed
        return sound and all(p.status in HARMLESS for p in self.plugins)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "ok": self.ok}


Watch = Callable[[str], None]
Environment = dict[str, "str | None"]


def examine(seconds: float = SECONDS, watch: Watch | None = None) -> Diagnosis:
    """Try every plugin that is found, and then load them together as a program does.

    Parameters
    ----------
    seconds : float
        How long a plugin may take for one answer.
    watch : callable, optional
        Called with what is looked at next.

    Raises
    ------
    WhispyxError
        This program cannot start children.
    """
    say = watch if watch is not None else _ignore
    say("looking for plugins")
    odd = malformed()
    unset: Environment = dict.fromkeys(odd)
    found, searched, problems = _look_around(seconds, unset)
    # The CPU plugins first, each alone: every other process has one, and must not get one that is bad.
    found.sort(key=lambda item: item.name != "cpu")
    results: list[Examination] = []
    for item in found:
        if item.status != EXCLUDED:
            say(item.label)
            bad_cpu = [r.path for r in results if r.name == "cpu" and r.status in (*HARMFUL, CRASHES_LATE)]
            item = _examine_one(item, bad_cpu if item.name != "cpu" else [], seconds, unset)
        results.append(item)
    say("all together")
    program = _try_together(seconds, {})
    harmful = [result for result in results if result.status in HARMFUL]
    if not harmful:
        return Diagnosis(tuple(results), searched, problems, program, malformed=odd)
    exclude = ",".join([*_excluded(unset), *(_exclusion(result, results) for result in harmful)])
    say("without those that do harm")
    without = _try_together(seconds, {**unset, EXCLUDE_VARIABLE: exclude})
    return Diagnosis(tuple(results), searched, problems, program, exclude, without, odd)


def _ignore(what: str) -> None:
    pass


def _excluded(unset: Environment) -> list[str]:
    """Return what the user excludes, as far as it can be understood."""
    return [] if EXCLUDE_VARIABLE in unset else [entry for kind in exclusions() for entry in sorted(kind)]


def _exclusion(bad: Examination, every: list[Examination]) -> str:
    """Return the entry that rules out one file and no sound one."""
    fellows = [p for p in every if p is not bad and p.name == bad.name and (p.tag == bad.tag or not bad.tag)]
    return bad.path if any(p.status not in HARMFUL for p in fellows) and "," not in bad.path else bad.label


def _look_around(
    seconds: float, environment: Environment
) -> tuple[list[Examination], tuple[str, ...], tuple[str, ...]]:
    found: list[Examination] = []
    searched: tuple[str, ...] = ()
    problems: list[str] = []
    for message in work("whispyx.plugins.checkup:look_around", {}, seconds, environment):
        if isinstance(message, Ending):
            if message.kind == "error":
                raise message.as_error()
            if message.kind not in ("done", "late crash"):
                # Only Python code of other packages has run: an entry point is to blame.
                problems.append(f"looking for plugins: {message.text} (a package with an entry point?)")
        elif "candidate" in message:
            candidate = message["candidate"]
            excluded = candidate.pop("excluded")
            found.append(Examination(**candidate, status=EXCLUDED if excluded else SOUND, reason=excluded or ""))
        else:
            searched = tuple(message["searched"])
            problems += [f"{p['place']} ({p['source']}): {p['reason']}" for p in message["problems"]]
    return found, searched, tuple(problems)


@dataclass
class _Notes:
    """What a child has told so far."""

    stage: str = "being loaded"
    facts: dict[str, Any] = field(default_factory=dict)
    devices: list[DeviceCheck] = field(default_factory=list)


def _examine_one(plugin: Examination, bad_cpu: list[str], seconds: float, unset: Environment) -> Examination:
    exclude = ",".join([*_excluded(unset), *bad_cpu])
    environment: Environment = {**unset, BACKEND_VARIABLE: None, EXCLUDE_VARIABLE: exclude or None}
    if plugin.name == "cpu":
        environment[VARIANT_VARIABLE] = None  # it names one, and every variant is tried
    notes = _Notes()
    request = {"path": plugin.path, "threads": default_threads()}
    ending = Ending("done")
    for message in work("whispyx.plugins.checkup:try_plugin", request, seconds, environment):
        if isinstance(message, Ending):
            ending = message
        else:
            _take(message, notes)
    plugin = replace(plugin, **notes.facts, devices=tuple(notes.devices))
    return _judged(plugin, notes.stage, ending)


def _take(message: Message, notes: _Notes) -> None:
    if "stage" in message:
        notes.stage = message["stage"]
    elif "score" in message:
        notes.facts = {**message, "notes": tuple(message["notes"])}
    elif "device" in message:
        facts = {("name" if key == "device" else key): value for key, value in message.items()}
        notes.devices.append(DeviceCheck(**facts))
    else:
        notes.devices[-1] = _with_job(notes.devices[-1], message)


def _with_job(device: DeviceCheck, message: Message) -> DeviceCheck:
    """Return a device with one more job, or with a start that failed."""
    if "fault" in message:
        about = f"{message['job']}: " if "job" in message else ""
        return replace(device, faults=(*device.faults, f"{about}{message['fault']}"))
    if "unsupported" in message:
        return replace(device, unsupported=device.unsupported + 1)
    part = message["nmse"] / message["bound"]
    device = replace(device, worst=max(device.worst, part))
    if part <= 1:
        return replace(device, right=device.right + 1)
    text = f"{message['job']}: wrong numbers, error {message['nmse']:.1e} where {message['bound']:.0e} is allowed"
    return replace(device, lies=True, faults=(*device.faults, text))


def _judged(plugin: Examination, stage: str, ending: Ending) -> Examination:
    if ending.kind == "error":
        status = UNSUITABLE if ending.error == BackendUnsupportedError.__name__ else REFUSED
        return replace(plugin, status=status, reason=ending.text)
    if ending.kind in _FROM_ENDING:
        when = "" if ending.kind == "late crash" else f", {stage}"
        return replace(plugin, status=_FROM_ENDING[ending.kind], reason=f"{ending.text}{when}", printed=ending.printed)
    for device in plugin.devices:
        if device.faults:
            status = LIES if device.lies else FAILS
            return replace(plugin, status=status, reason=f"device {device.name}: {device.faults[0]}")
    return plugin


def _try_together(seconds: float, environment: dict[str, str | None]) -> Program:
    program = Program(False, "nothing was told")
    for message in work("whispyx.plugins.checkup:try_all", {}, seconds, environment):
        if isinstance(message, Ending):
            if message.kind not in ("done", "late crash"):
                return Program(False, message.text)
            if message.kind == "late crash":
                program = replace(program, text=message.text)
        else:
            program = Program(
                works=True,
                devices=tuple(message["devices"]),
                selected=message["selected"],
                all_devices=tuple(message["all"]),
                loaded=tuple(message["loaded"]),
                fallbacks=tuple(message["fallbacks"]),
            )
    return program
