"""What a caller can ask of one transcription, checked before any work starts.

`TranscribeOptions` is the only table of options: the keyword arguments of `Model.transcribe`, the flags of the command
line and the parameters handed to the engine are all made from its fields.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, SupportsFloat, SupportsIndex, TypedDict, cast

from .constants import MAX_DECODERS
from .errors import ParamsError
from .languages import CODES, lang_id

__all__ = [
    "MAX_THREADS",
    "OptionFields",
    "Task",
    "TranscribeOptions",
    "check_callable",
    "check_count",
    "check_language",
    "check_threads",
]

Task = Literal["transcribe", "translate"]

MAX_THREADS: Final = 512
"""Most threads one job can ask for (ggml's own limit, GGML_MAX_N_THREADS)."""

_TASKS: Final = ("transcribe", "translate")
_MIN_STEP: Final = 0.01  # of the temperature: 100 attempts per window
_MAX_SECONDS: Final = 2_000_000.0  # the engine counts milliseconds in 32 bits


class OptionFields(TypedDict, total=False):
    """Keyword arguments of `Model.transcribe` beside the audio and the language; see `TranscribeOptions`."""

    task: Task
    initial_prompt: str | None
    carry_initial_prompt: bool
    condition_on_previous_text: bool
    timestamps: bool
    temperature: float
    temperature_inc: float
    best_of: int
    beam_size: int
    patience: float | None
    seed: int
    length_penalty: float | None
    entropy_thold: float
    logprob_thold: float
    no_speech_thold: float
    suppress_blank: bool
    suppress_nst: bool
    suppress_listed: bool
    suppress_regex: str | None
    max_initial_ts: float
    max_tokens: int | None
    offset: float
    duration: float | None
    audio_ctx: int | None
    no_pad: bool
    n_threads: int | None


def _number(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise ParamsError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not low <= number <= high:
        raise ParamsError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}")
    return number


def _integer(name: str, value: object, low: int, high: int) -> int:
    wanted = f"{name} must be a whole number from {low} to {high}; got {value!r}"
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ParamsError(wanted)
    number = operator.index(value)
    if not low <= number <= high:
        raise ParamsError(wanted)
    return number


def check_callable(name: str, value: object) -> None:
    """Refuse a callback that cannot be called, before it is needed."""
    if value is not None and not callable(value):
        raise ParamsError(f"{name} must be a function or None; got {value!r}")


def check_count(name: str, value: object, low: int) -> int:
    """Return `value` as a number of things; `ParamsError` when it is not a whole number of at least `low`."""
    return _integer(name, value, low, 2**31 - 1)


def check_threads(value: object) -> int:
    """Return `value` as a thread count; `ParamsError` when it is not a whole number from 1 to `MAX_THREADS`."""
    return _integer("n_threads", value, 1, MAX_THREADS)


def check_language(value: object) -> str | None:
    """Return the short code of a language given by code or English name; None, "auto" and "" mean "detect it".

    Raises
    ------
    ParamsError
        `value` is neither None nor a string.
    LanguageError
        The language is not one that Whisper knows.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise ParamsError(f"language must be a short code, an English name, 'auto' or None; got {value!r}")
    if value.strip().lower() in ("", "auto"):
        return None
    return CODES[lang_id(value)]


def _option(default: Any, help: str = "", *, flag: str | None = None, low: float = 0, high: float = 0) -> Any:
    """A field with its range, and its flag and words on the command line (`flag` None: not offered there)."""
    return field(default=default, metadata={"help": help, "flag": flag, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscribeOptions:
    """The options of one transcription. Frozen: a call never changes them, and a result carries those it was made with.

    Parameters
    ----------
    language : str or None
        Short code ("de") or English name ("german"). None or "auto": detected on a multilingual model, English on an
        English-only one.
    task : {"transcribe", "translate"}
        Keep the language of the speech, or translate it to English.
    initial_prompt : str or None
        Text the model is told came before: spelling of names, style, topic.
    carry_initial_prompt : bool
        Repeat the initial prompt in front of every 30 s window instead of the first only.
    condition_on_previous_text : bool
        Show each window the text of the windows before it. Nothing is ever carried from one call to the next.
    timestamps : bool
        Let the model place times inside a window. Without, each window is one segment.
    temperature : float
        First sampling temperature, 0 to 10. 0 is greedy.
    temperature_inc : float
        Step to the next temperature when a window fails a quality test, 0.01 to 10. 0: no second attempt.
    best_of : int
        Candidates drawn at a temperature above 0, 1 to 8.
    beam_size : int
        Texts that are followed side by side at temperature 0, 1 to 8. 1: the most probable token is taken each time.
    patience : float or None
        How many times `beam_size` texts are finished before the best is taken, 0.1 to 10. None: a finished text keeps
        its place among the others, as in whisper.cpp. Needs a `beam_size` above 1.
    seed : int
        Where the random numbers of temperatures above 0 start, 0 to 4294967295. The same seed gives the same text.
    length_penalty : float or None
        Exponent of the length normalisation when candidates are ranked, 0 to 10. None: plain average.
    entropy_thold : float
        A window whose tokens have less entropy than this is taken for a repetition loop, -100 to 100.
    logprob_thold : float
        A window whose average log probability is below this is tried again, -100 to 100.
    no_speech_thold : float
        A window with a higher no-speech probability, and a low average log probability, is left out, 0 to 1.
    suppress_blank : bool
        Never start a window with a blank.
    suppress_nst : bool
        Never write tokens that are not speech, such as brackets and notes.
    suppress_listed : bool
        Never write the tokens that the model's own files list as such (`suppress_tokens` of Hugging Face's
        generation_config.json and its like in other forms), and those of `begin_suppress_tokens` not first, unless
        `suppress_blank` is off. whisper.cpp's files list none.
    suppress_regex : str or None
        Never write tokens in whose text this pattern is found, also where it takes a character that is split over
        tokens. `[0-9]` leaves numbers to be written as words.
    max_initial_ts : float
        Latest time of the first token of a window, in seconds, 0 to 30. 0: no limit.
    max_tokens : int or None
        Most tokens per window, 1 to 1000. None: as many as the model's context holds.
    offset : float
        Where in the audio to start, in seconds.
    duration : float or None
        How much of it to take, in seconds. None: to the end.
    audio_ctx : int or None
        Encoder positions to use, 1 to 1500: less is faster and less exact. None: all.
    no_pad : bool
        Let each window be as long as what is left of the sound and a good second, instead of 30 s: short sounds are
        recognised several times as fast. The models were trained on 30 s; a text may come out differently, or repeat
        itself.
    n_threads : int or None
        Threads of this job, 1 to 512. None: those of the model.

    Raises
    ------
    ParamsError
        A value has the wrong type or is out of range; the message names it and the range.
    LanguageError
        The language is not one that Whisper knows.
    """

    language: str | None = None
    task: Task = "transcribe"
    initial_prompt: str | None = _option(None, "text the model is told came before the audio", flag="--prompt")
    carry_initial_prompt: bool = _option(
        False, "repeat the prompt in front of every window", flag="--carry-initial-prompt"
    )
    condition_on_previous_text: bool = _option(
        True, "do not show a window the text of the windows before it", flag="--no-context"
    )
    timestamps: bool = _option(True, "let the model place no times; one segment per window", flag="--no-timestamps")
    temperature: float = _option(0.0, "first sampling temperature", flag="--temperature", high=10)
    temperature_inc: float = _option(
        0.2, "step of the temperature after a failed attempt, 0: no second attempt", flag="--temperature-inc", high=10
    )
    best_of: int = _option(5, "candidates at a temperature above 0", flag="--best-of", low=1, high=MAX_DECODERS)
    beam_size: int = _option(
        1, "texts followed side by side at temperature 0", flag="--beam-size", low=1, high=MAX_DECODERS
    )
    patience: float | None = _option(None, "finish this many times the beam size", flag="--patience", low=0.1, high=10)
    seed: int = _option(0, "where the random numbers of temperatures above 0 start", flag="--seed", high=2**32 - 1)
    length_penalty: float | None = _option(None, high=10)
    entropy_thold: float = _option(
        2.4, "entropy below which a window is taken for a loop", flag="--entropy-thold", low=-100, high=100
    )
    logprob_thold: float = _option(
        -1.0, "average log probability below which a window is tried again", flag="--logprob-thold", low=-100, high=100
    )
    no_speech_thold: float = _option(
        0.6, "no-speech probability above which an unsure window is left out", flag="--no-speech-thold", high=1
    )
    suppress_blank: bool = True
    suppress_nst: bool = _option(False, "never write tokens that are not speech", flag="--suppress-nst")
    suppress_listed: bool = _option(
        True, "also write tokens that the model's files say not to", flag="--no-suppress-listed"
    )
    suppress_regex: str | None = _option(None, "never write tokens with this pattern in them", flag="--suppress-regex")
    max_initial_ts: float = _option(1.0, high=30)
    max_tokens: int | None = _option(None, "most tokens per window", flag="--max-tokens", low=1, high=1000)
    offset: float = _option(0.0, "start this many seconds into the audio", flag="--offset", high=_MAX_SECONDS)
    duration: float | None = _option(None, "take this many seconds only", flag="--duration", high=_MAX_SECONDS)
    audio_ctx: int | None = _option(None, low=1, high=1500)
    no_pad: bool = _option(False, "encode no more than a short sound needs: faster, less sure", flag="--no-pad")
    n_threads: int | None = _option(None, "threads to compute with", flag="--threads", low=1, high=MAX_THREADS)

    def __post_init__(self) -> None:
        put = object.__setattr__  # the dataclass is frozen
        put(self, "language", check_language(self.language))
        if self.task not in _TASKS:
            raise ParamsError(f"task must be 'transcribe' or 'translate'; got {self.task!r}")
        for name in ("initial_prompt", "suppress_regex"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), str):
                raise ParamsError(f"{name} must be a string or None; got {getattr(self, name)!r}")
        for option in fields(self):
            kind, value = str(option.type), getattr(self, option.name)
            low, high = option.metadata.get("low", 0), option.metadata.get("high", 0)
            if value is None and kind.endswith("| None"):
                continue
            if kind.startswith("float"):
                put(self, option.name, _number(option.name, value, low, high))
            elif kind.startswith("int"):
                put(self, option.name, _integer(option.name, value, low, high))
            elif kind == "bool" and not isinstance(value, bool):
                raise ParamsError(f"{option.name} must be True or False; got {value!r}")
        if 0 < self.temperature_inc < _MIN_STEP:
            raise ParamsError(
                f"temperature_inc must be 0 (no second attempt) or at least {_MIN_STEP}; got {self.temperature_inc:g}"
            )
        if self.patience is not None and self.beam_size == 1:
            raise ParamsError(f"patience needs a beam_size above 1; got {self.patience!r}")
        if self.duration is not None and self.duration <= 0:
            raise ParamsError(f"duration must be more than 0 s; got {self.duration:g} (leave it out to go to the end)")

    @classmethod
    def from_keywords(cls, language: str | None, keywords: Mapping[str, object]) -> TranscribeOptions:
        """Make options from the keyword arguments of a call.

        Raises
        ------
        TypeError
            A keyword is not an option; the message offers the nearest name.
        """
        known = {option.name for option in fields(cls)} - {"language"}
        for name in keywords:
            if name not in known:
                import difflib  # only for what it helps to say

                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"unknown transcription option {name!r}{hint}")
        return cls(language=language, **cast("dict[str, Any]", dict(keywords)))

    def with_threads(self, n_threads: int) -> TranscribeOptions:
        """Return these options, with the model's thread count where this call gave none."""
        return self if self.n_threads is not None else replace(self, n_threads=n_threads)

    def to_dict(self) -> dict[str, object]:
        """Return the options as plain values, in field order."""
        return {option.name: getattr(self, option.name) for option in fields(self)}
