"""Parameters of a whole run: whisper_full_params, flat, every value checked when it is set."""

import math
import os

from whispyx.constants import MAX_DECODERS
from whispyx.errors import ParamsError
from whispyx.languages import CODES, lang_id


def usable_cores() -> int:
    """Return how many cores this process may use: its CPU affinity, and its cgroup's quota where there is one."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()[:2]
        if quota != "max":
            n = min(n, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        pass   # no cgroup v2 here, or no quota
    return max(1, n)


def _integer(low, high):
    def check(name, value):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ParamsError(f"{name} must be an integer, not {value!r}")
        value = value.__index__()
        if not low <= value <= high:
            raise ParamsError(f"{name} is {value}; {low} to {high} are possible")
        return value
    return check


def _real(low, high):
    def check(name, value):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ParamsError(f"{name} must be a number, not {value!r}") from None
        if not low <= number <= high:   # also refuses NaN
            raise ParamsError(f"{name} is {value}; {low} to {high} are possible")
        return number
    return check


def _step(name, value):
    number = _real(-1.0, 100.0)(name, value)
    if 0.0 < number < MIN_STEP:
        raise ParamsError(f"{name} is {value}; {MIN_STEP} is the smallest step, 0 means no second attempt")
    return number


def _flag(name, value):
    if value is not True and value is not False and type(value).__name__ not in ("bool", "bool_"):
        raise ParamsError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def _text(name, value):
    if value is not None and not isinstance(value, str):
        raise ParamsError(f"{name} must be text or None, not {value!r}")
    return value or None


def _tokens(name, value):
    if value is None:
        return None
    if not hasattr(value, "__iter__"):
        raise ParamsError(f"{name} must be token ids or None, not {value!r}")
    check = _integer(0, 2**31 - 1)
    return tuple([check(f"{name}[{i}]", token) for i, token in enumerate(value)]) or None


def _language(name, value):
    if value is None or value == "" or value == "auto":
        return None
    if not isinstance(value, str):
        raise ParamsError(f"{name} must be a language code or name, or None, not {value!r}")
    return CODES[lang_id(value)]


def _callback(name, value):
    if value is not None and not callable(value):
        raise ParamsError(f"{name} must be callable or None, not {value!r}")
    return value


_INT = 2**31 - 1
MIN_STEP = 0.01     # between two temperatures: 100 attempts per window

# name: (default, check). Names, defaults and meanings are those of whisper_full_params (greedy), except `seed`.
FIELDS = {
    "n_threads": (None, _integer(1, 512)),
    "n_max_text_ctx": (16384, _integer(0, _INT)),
    "offset_ms": (0, _integer(0, _INT)),
    "duration_ms": (0, _integer(0, _INT)),
    "translate": (False, _flag),
    "no_context": (True, _flag),
    "no_timestamps": (False, _flag),
    "single_segment": (False, _flag),
    "print_special": (False, _flag),
    "max_tokens": (0, _integer(0, _INT)),
    "audio_ctx": (0, _integer(0, _INT)),
    "tdrz_enable": (False, _flag),
    "initial_prompt": (None, _text),
    "carry_initial_prompt": (False, _flag),
    "prompt_tokens": (None, _tokens),
    "language": ("en", _language),
    "detect_language": (False, _flag),
    "suppress_blank": (True, _flag),
    "suppress_nst": (False, _flag),
    "temperature": (0.0, _real(0.0, 100.0)),
    "max_initial_ts": (1.0, _real(-1.0, 1e6)),
    "length_penalty": (-1.0, _real(-1e6, 1e6)),
    "temperature_inc": (0.2, _step),
    "entropy_thold": (2.4, _real(-1e6, 1e6)),
    "logprob_thold": (-1.0, _real(-1e6, 1e6)),
    "no_speech_thold": (0.6, _real(-1e6, 1e6)),
    "best_of": (5, _integer(1, MAX_DECODERS)),
    "seed": (0, _integer(0, 2**32 - 1)),
    "progress_callback": (None, _callback),
    "new_segment_callback": (None, _callback),
    "encoder_begin_callback": (None, _callback),
    "abort_callback": (None, _callback),
}


cdef class FullParams:
    """Parameters of one run, as attributes; see `FIELDS` for names and defaults.

    Raises
    ------
    TypeError
        An unknown name.
    ParamsError, LanguageError
        A value of the wrong type or out of range; nothing is changed then.
    """

    def __init__(self, **overrides) -> None:
        self.values = {name: default for name, (default, _) in FIELDS.items()}
        self.values["n_threads"] = min(4, usable_cores())
        for name, value in overrides.items():
            if name not in FIELDS:
                raise TypeError(f"FullParams has no parameter {name!r}")
            setattr(self, name, value)

    cdef object get(self, str name):
        return self.values[name]

    def __getattr__(self, name):
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"FullParams has no parameter {name!r}") from None

    def __setattr__(self, name, value) -> None:
        if name not in FIELDS:
            raise AttributeError(f"FullParams has no parameter {name!r}")
        self.values[name] = FIELDS[name][1](name, value)

    def copy(self) -> FullParams:
        """Return a copy that can be changed on its own."""
        cdef FullParams other = FullParams.__new__(FullParams)
        other.values = dict(self.values)
        return other

    def as_dict(self) -> dict:
        """Return the parameters by name, as a copy."""
        return dict(self.values)

    def __repr__(self) -> str:
        changed = {n: v for n, v in self.values.items() if v != FIELDS[n][0]}
        return f"FullParams({', '.join([f'{n}={v!r}' for n, v in changed.items()])})"
