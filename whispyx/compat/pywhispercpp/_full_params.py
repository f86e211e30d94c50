"""whisper_full_params: everything that one run can be told, with the habits of the extension's class.

Texts that are not set read as "". `language` takes a code or an English name and keeps the code; anything else, "auto"
and "" included, means that the language is detected. `greedy` and `beam_search` are dicts, `prompt_tokens` is a tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whispyx import capi
from whispyx.compat.pywhispercpp._enums import whisper_sampling_strategy
from whispyx.compat.pywhispercpp._structs import (
    Field,
    Struct,
    bool_field,
    fields_of,
    filled,
    float_field,
    int_field,
    whisper_vad_params,
)
from whispyx.compat.pywhispercpp._values import as_callback, as_float, as_int, as_text, as_tokens, inside

CALLBACKS = ("new_segment", "progress", "encoder_begin", "abort", "logits_filter")


def _strategy(name: str, value: Any) -> int:
    if not isinstance(value, whisper_sampling_strategy):
        raise TypeError(f"{name} must be a whisper_sampling_strategy, not {value!r}")
    return value.value


def _language(name: str, value: Any) -> str | None:
    text = "" if value is None else as_text(name, value)
    if not text:
        return None
    number = capi.whisper_lang_id(text)
    return None if number < 0 else capi.whisper_lang_str(number)


def _greedy(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, not {value!r}")
    return capi.whisper_full_params_greedy(best_of=inside(as_int, "best_of", value["best_of"]))


def _beam_search(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, not {value!r}")
    return capi.whisper_full_params_beam_search(
        beam_size=inside(as_int, "beam_size", value["beam_size"]),
        patience=inside(as_float, "patience", value["patience"]),
    )


def _text_field() -> Field[Any]:
    return Field(as_text, None, lambda text: text or "")


def _user_data_field() -> Field[Any]:
    return Field(lambda name, value: value, None)


class FullParamsBase(Struct):
    """The base class of whisper_full_params, to which the extension gives a name of its own."""

    __slots__ = ("_callbacks", "_vad_params")
    _kind = capi.whisper_full_params
    _callbacks: dict[str, Callable[..., Any]]
    _vad_params: whisper_vad_params

    def __init__(self) -> None:
        c = capi.whisper_full_params()
        for name, field in fields_of(whisper_full_params):
            setattr(c, name, field.zero)
        c.greedy, c.beam_search = _greedy("greedy", {"best_of": 0}), _beam_search("", {"beam_size": 0, "patience": 0})
        c.vad_params = whisper_vad_params()._c
        c.grammar_penalty = 0
        self._hold(c)

    def _hold(self, c: Any) -> None:
        self._c = c
        self._callbacks = {}
        self._vad_params = filled(whisper_vad_params, c.vad_params)

    def __repr__(self) -> str:
        return f"{repr(self._c)[:-1]}, callbacks={self._callbacks!r})"


class whisper_full_params(FullParamsBase):
    """Parameters of whisper_full. Those of a new object are all zero: use whisper_full_default_params."""

    __slots__ = ()
    strategy: Field[Any] = Field(_strategy, 0, whisper_sampling_strategy)
    n_threads = int_field()
    n_max_text_ctx = int_field()
    offset_ms = int_field()
    duration_ms = int_field()
    translate = bool_field()
    no_context = bool_field()
    no_timestamps = bool_field()
    single_segment = bool_field()
    print_special = bool_field()
    print_progress = bool_field()
    print_realtime = bool_field()
    print_timestamps = bool_field()
    token_timestamps = bool_field()
    thold_pt = float_field()
    thold_ptsum = float_field()
    max_len = int_field()
    split_on_word = bool_field()
    max_tokens = int_field()
    debug_mode = bool_field()
    audio_ctx = int_field()
    tdrz_enable = bool_field()
    suppress_regex = _text_field()
    initial_prompt = _text_field()
    carry_initial_prompt = bool_field()
    prompt_n_tokens = int_field()
    language: Field[Any] = Field(_language, None, lambda code: code or "")
    detect_language = bool_field()
    suppress_blank = bool_field()
    suppress_nst = bool_field()
    temperature = float_field()
    max_initial_ts = float_field()
    length_penalty = float_field()
    temperature_inc = float_field()
    entropy_thold = float_field()
    logprob_thold = float_field()
    no_speech_thold = float_field()
    vad = bool_field()
    vad_model_path = _text_field()
    new_segment_callback_user_data = _user_data_field()
    progress_callback_user_data = _user_data_field()
    encoder_begin_callback_user_data = _user_data_field()
    abort_callback_user_data = _user_data_field()
    logits_filter_callback_user_data = _user_data_field()

    @property
    def greedy(self) -> dict[str, int]:
        """`best_of`: candidates at temperatures above 0."""
        return {"best_of": self._c.greedy.best_of}

    @greedy.setter
    def greedy(self, value: Any) -> None:
        self._c.greedy = _greedy("greedy", value)

    @property
    def beam_search(self) -> dict[str, float]:
        """`beam_size` and `patience`; both must be given."""
        return {"beam_size": self._c.beam_search.beam_size, "patience": self._c.beam_search.patience}

    @beam_search.setter
    def beam_search(self, value: Any) -> None:
        self._c.beam_search = _beam_search("beam_search", value)

    @property
    def vad_params(self) -> whisper_vad_params:
        """The parameters of voice activity detection themselves; assigning copies into them."""
        return self._vad_params

    @vad_params.setter
    def vad_params(self, value: Any) -> None:
        if not isinstance(value, whisper_vad_params):
            raise TypeError(f"vad_params must be a whisper_vad_params, not {value!r}")
        self._c.vad_params = value._c
        self._vad_params._c = self._c.vad_params

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """Ids that stand before the text, in place of `initial_prompt`; the first `prompt_n_tokens` count."""
        return self._c.prompt_tokens or ()

    @prompt_tokens.setter
    def prompt_tokens(self, value: Any) -> None:
        if value is None:
            self.clear_prompt_tokens()
        else:
            self._set_tokens(inside(as_tokens, "prompt_tokens", value))

    def set_prompt_tokens(self, tokens: Any) -> None:
        """Set `prompt_tokens` and `prompt_n_tokens`."""
        self._set_tokens(as_tokens("tokens", tokens))

    def _set_tokens(self, tokens: tuple[int, ...]) -> None:
        self._c.prompt_tokens, self._c.prompt_n_tokens = tokens or None, len(tokens)

    def clear_prompt_tokens(self) -> None:
        """Go back to `initial_prompt`."""
        self._set_tokens(())

    @property
    def progress_callback(self) -> Callable[..., Any]:
        """The callback that gets the progress. TypeError when there is none, as in the extension."""
        callback = self._callbacks.get("progress")
        if callback is None:
            raise TypeError("no progress callback is set")
        return callback

    @progress_callback.setter
    def progress_callback(self, value: Any) -> None:
        if not callable(value):
            raise TypeError(f"progress_callback must be callable, not {value!r}")
        self._callbacks["progress"] = value

    def set_new_segment_callback(self, callback: Any = None) -> None:
        """Have callback(ctx, n_new) called after new segments; None: no more."""
        assign_new_segment_callback(self, callback)

    def set_progress_callback(self, callback: Any = None) -> None:
        """Have callback(percent) called while `print_progress` is set; None: print as before."""
        assign_progress_callback(self, callback)

    def set_encoder_begin_callback(self, callback: Any = None) -> None:
        """Have callback(ctx) called before each encoder run; what is not true ends the run. None: no more."""
        assign_encoder_begin_callback(self, callback)

    def set_abort_callback(self, callback: Any = None) -> None:
        """Have callback() called often during the run; what is true aborts it. None: no more."""
        assign_abort_callback(self, callback)

    def set_logits_filter_callback(self, callback: Any = None) -> None:
        """Have callback(ctx, n_tokens, logit) called at each step with the logit of token 0. None: no more."""
        assign_logits_filter_callback(self, callback)

    def clear_new_segment_callback(self) -> None:
        """Forget the new-segment callback."""
        clear_new_segment_callback(self)

    def clear_progress_callback(self) -> None:
        """Forget the progress callback; progress is printed again."""
        clear_progress_callback(self)

    def clear_encoder_begin_callback(self) -> None:
        """Forget the encoder-begin callback."""
        clear_encoder_begin_callback(self)

    def clear_abort_callback(self) -> None:
        """Forget the abort callback."""
        clear_abort_callback(self)

    def clear_logits_filter_callback(self) -> None:
        """Forget the logits filter."""
        clear_logits_filter_callback(self)


def params_of(params: Any) -> FullParamsBase:
    """Return `params` after checking its class."""
    if not isinstance(params, FullParamsBase):
        raise TypeError(f"a whisper_full_params is needed, not {params!r}")
    return params


def _assign(params: Any, name: str, callback: Any) -> None:
    held = params_of(params)
    function = as_callback("callback", callback)
    if function is None:
        held._callbacks.pop(name, None)
    else:
        held._callbacks[name] = function


def assign_new_segment_callback(params: Any, callback: Any = None) -> None:
    """Have callback(ctx, n_new) called after new segments; None: no more."""
    _assign(params, "new_segment", callback)


def assign_progress_callback(params: Any, callback: Any = None) -> None:
    """Have callback(percent) called while `print_progress` is set; None: print as before."""
    _assign(params, "progress", callback)


def assign_encoder_begin_callback(params: Any, callback: Any = None) -> None:
    """Have callback(ctx) called before each encoder run; what is not true ends the run. None: no more."""
    _assign(params, "encoder_begin", callback)


def assign_abort_callback(params: Any, callback: Any = None) -> None:
    """Have callback() called often during the run; what is true aborts it. None: no more."""
    _assign(params, "abort", callback)


def assign_logits_filter_callback(params: Any, callback: Any = None) -> None:
    """Have callback(ctx, n_tokens, logit) called at each step with the logit of token 0. None: no more."""
    _assign(params, "logits_filter", callback)


def clear_new_segment_callback(params: Any) -> None:
    """Forget the new-segment callback."""
    _assign(params, "new_segment", None)


def clear_progress_callback(params: Any) -> None:
    """Forget the progress callback; progress is printed again."""
    _assign(params, "progress", None)


def clear_encoder_begin_callback(params: Any) -> None:
    """Forget the encoder-begin callback."""
    _assign(params, "encoder_begin", None)


def clear_abort_callback(params: Any) -> None:
    """Forget the abort callback."""
    _assign(params, "abort", None)


def clear_logits_filter_callback(params: Any) -> None:
    """Forget the logits filter."""
    _assign(params, "logits_filter", None)


def whisper_full_default_params(strategy: Any) -> whisper_full_params:
    """New parameters for one of the two strategies."""
    new = whisper_full_params.__new__(whisper_full_params)
    new._hold(capi.whisper_full_default_params(_strategy("strategy", strategy)))
    return new
