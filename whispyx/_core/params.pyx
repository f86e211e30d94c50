"""Parameters of a whole run: whisper_full_params, flat, every value checked when it is set."""

import os

from whispyx._core.cores import usable_cores
from whispyx._core.grammar import Grammar
from whispyx._core.regex import compile_pattern
from whispyx.constants import MAX_DECODERS
from whispyx.errors import ParamsError
from whispyx.languages import CODES, lang_id


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


def _choice(*choices):
    def check(name, value):
        if value not in choices:
            raise ParamsError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value
    return check


def _pattern(name, value):
    value = _text(name, value)
    if value is not None and len(value) > MAX_PATTERN:
        raise ParamsError(f"{name} has {len(value)} characters; {MAX_PATTERN} are possible")
    if value is not None:
        compile_pattern(value, False)       # refused here, before anything is decoded
    return value


def _path(name, value):
    if value is None or value == "":
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise ParamsError(f"{name} must be a path or None, not {value!r}")
    return os.fspath(value)


def _grammar(name, value):
    if value is not None and not isinstance(value, Grammar):
        raise ParamsError(f"{name} must be a Grammar or None, not {value!r}")
    return value


def _vad_params(name, value):
    if not isinstance(value, VadParams):
        raise ParamsError(f"{name} must be a VadParams, not {value!r}")
    return value.copy()


def _callback(name, value):
    if value is not None and not callable(value):
        raise ParamsError(f"{name} must be callable or None, not {value!r}")
    return value


_INT = 2**31 - 1
MIN_STEP = 0.01     # between two temperatures: 100 attempts per window
MAX_PATTERN = 10000
FLT_MAX = 3.4028234663852886e38

# name: (default, check), as in whisper_vad_params.
VAD_FIELDS = {
    "threshold": (0.5, _real(0.0, 1.0)),
    "min_speech_duration_ms": (250, _integer(0, _INT // 16)),
    "min_silence_duration_ms": (100, _integer(0, _INT // 16)),
    "max_speech_duration_s": (FLT_MAX, _real(0.0, FLT_MAX)),
    "speech_pad_ms": (30, _integer(0, _INT // 16)),
    "samples_overlap": (0.1, _real(0.0, 1e5)),
}


class VadParams:
    """How speech regions are made from probabilities: whisper_vad_params, every value checked when it is set.

    Parameters
    ----------
    threshold : float
        A 32 ms window with at least this probability is speech, 0 to 1.
    min_speech_duration_ms, min_silence_duration_ms : int
        Shorter speech is dropped; shorter silence does not end speech.
    max_speech_duration_s : float
        Longer regions are split.
    speech_pad_ms : int
        Added on both sides of a region.
    samples_overlap : float
        Seconds that are copied past the end of every region but the last.

    Raises
    ------
    TypeError
        An unknown name.
    ParamsError
        A value of the wrong type or out of range; nothing is changed then.
    """

    __slots__ = ("_values",)

    def __init__(self, **overrides) -> None:
        object.__setattr__(self, "_values", {name: default for name, (default, _) in VAD_FIELDS.items()})
        for name, value in overrides.items():
            if name not in VAD_FIELDS:
                raise TypeError(f"VadParams has no parameter {name!r}")
            setattr(self, name, value)

    def __getattr__(self, name):
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"VadParams has no parameter {name!r}") from None

    def __setattr__(self, name, value) -> None:
        if name not in VAD_FIELDS:
            raise AttributeError(f"VadParams has no parameter {name!r}")
        self._values[name] = VAD_FIELDS[name][1](name, value)

    def __eq__(self, other):
        return self._values == other._values if isinstance(other, VadParams) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        return f"VadParams({', '.join([f'{n}={v!r}' for n, v in self._values.items()])})"

    def copy(self) -> VadParams:
        """Return a copy that can be changed on its own."""
        return VadParams(**self._values)


# name: (default, check). Names, defaults and meanings are those of whisper_full_params (greedy), nested structs flat.
# Of our own: seed, suppress_regex_search, suppress_listed, dtw, word_timestamps, reference_sampling.
FIELDS = {
    "strategy": ("greedy", _choice("greedy", "beam_search")),
    "n_threads": (None, _integer(1, 512)),
    "n_max_text_ctx": (16384, _integer(0, _INT)),
    "offset_ms": (0, _integer(0, _INT)),
    "duration_ms": (0, _integer(0, _INT)),
    "translate": (False, _flag),
    "no_context": (True, _flag),
    "no_timestamps": (False, _flag),
    "single_segment": (False, _flag),
    "print_special": (False, _flag),
    "print_realtime": (False, _flag),
    "print_timestamps": (True, _flag),
    "token_timestamps": (False, _flag),
    "thold_pt": (0.01, _real(-1e6, 1e6)),
    "thold_ptsum": (0.01, _real(-1e6, 1e6)),
    "max_len": (0, _integer(0, _INT)),
    "split_on_word": (False, _flag),
    "max_tokens": (0, _integer(0, _INT)),
    "audio_ctx": (0, _integer(0, _INT)),
    "no_pad": (False, _flag),           # windows no longer than the sound needs, where audio_ctx is 0
    "tdrz_enable": (False, _flag),
    "suppress_regex": (None, _pattern),
    "suppress_regex_search": (False, _flag),    # a match anywhere in a token's text, not of the whole text
    "initial_prompt": (None, _text),
    "carry_initial_prompt": (False, _flag),
    "prompt_tokens": (None, _tokens),
    "language": ("en", _language),
    "detect_language": (False, _flag),
    "suppress_blank": (True, _flag),
    "suppress_nst": (False, _flag),
    "suppress_listed": (False, _flag),  # the tokens that the model's own files list; whisper.cpp's list none
    "temperature": (0.0, _real(0.0, 100.0)),
    "max_initial_ts": (1.0, _real(-1.0, 1e6)),
    "length_penalty": (-1.0, _real(-1e6, 1e6)),
    "temperature_inc": (0.2, _step),
    "entropy_thold": (2.4, _real(-1e6, 1e6)),
    "logprob_thold": (-1.0, _real(-1e6, 1e6)),
    "no_speech_thold": (0.6, _real(-1e6, 1e6)),
    "best_of": (5, _integer(1, MAX_DECODERS)),
    "beam_size": (5, _integer(1, MAX_DECODERS)),
    "patience": (-1.0, _real(-1.0, 100.0)),
    "grammar": (None, _grammar),
    "grammar_penalty": (100.0, _real(-1e6, 1e6)),
    "vad": (False, _flag),
    "vad_model_path": (None, _path),
    "vad_params": (VadParams(), _vad_params),
    "dtw": (False, _flag),              # token times by the model's alignment heads
    "word_timestamps": (False, _flag),  # words with start and end, from the same heads and the sound's energy
    "reference_sampling": (False, _flag),   # beams draw at random, as whisper.cpp's do; for comparisons
    "seed": (0, _integer(0, 2**32 - 1)),
    "progress_callback": (None, _callback),
    "new_segment_callback": (None, _callback),
    "encoder_begin_callback": (None, _callback),
    "abort_callback": (None, _callback),
    "logits_filter_callback": (None, _callback),
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
        self.values["vad_params"] = VadParams()
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
        other.values["vad_params"] = self.values["vad_params"].copy()
        return other

    def as_dict(self) -> dict:
        """Return the parameters by name, as a copy."""
        return dict(self.values)

    def __repr__(self) -> str:
        changed = {n: v for n, v in self.values.items() if v != FIELDS[n][0]}
        return f"FullParams({', '.join([f'{n}={v!r}' for n, v in changed.items()])})"


def temperatures(FullParams params not None) -> list[float]:
    """Return the temperatures of the attempts at a window; the first one is always tried."""
    cdef float t, step = params.get("temperature_inc")
    cdef list found = [params.get("temperature")]
    if step > 0:
        t = <float>params.get("temperature") + step
        while t < 1.0 + 1e-6:
            found.append(t)
            t += step
    return found
