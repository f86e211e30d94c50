"""whisper_full_params: everything that one run can be told."""

from __future__ import annotations

from typing import Any

from whispyx._core.grammar import Grammar
from whispyx._core.params import usable_cores
from whispyx.capi._struct import Array, Bool, Callback, Enum, Float, Int, Nested, Object, Struct, Text
from whispyx.capi.constants import WHISPER_SAMPLING_GREEDY, whisper_sampling_strategy
from whispyx.capi.structs import whisper_vad_params

__all__ = ["whisper_full_params", "whisper_full_params_beam_search", "whisper_full_params_greedy"]

DEFAULT_THREADS = 4


class whisper_full_params_greedy(Struct):
    """The struct `greedy` inside whisper_full_params, which has no name in C."""

    __slots__ = ()
    best_of = Int(-1)


class whisper_full_params_beam_search(Struct):
    """The struct `beam_search` inside whisper_full_params, which has no name in C."""

    __slots__ = ()
    beam_size = Int(-1)
    patience = Float(-1.0)


class NThreads(Int):
    """The default follows the machine: as many threads as this process may use, four at most."""

    def default(self) -> int:
        return min(DEFAULT_THREADS, usable_cores())


class Rules(Array):
    """Rules of a grammar, or a grammar that is made already."""

    def convert(self, value: Any) -> Any:
        return value if isinstance(value, Grammar) else super().convert(value)


class whisper_full_params(Struct):
    """Parameters of whisper_full, as whisper_full_default_params makes them.

    Texts are str or bytes in UTF-8. `prompt_tokens` is a sequence of ids of which `prompt_n_tokens` count.
    `grammar_rules` is a sequence of rules, each a sequence of whisper_grammar_element, or a Grammar of
    `whispyx.capi.grammar`. User data is any object. `debug_mode` and `print_progress` have no effect.
    """

    __slots__ = ()
    strategy = Enum(whisper_sampling_strategy, WHISPER_SAMPLING_GREEDY)

    n_threads = NThreads()
    n_max_text_ctx = Int(16384)
    offset_ms = Int(0)
    duration_ms = Int(0)

    translate = Bool(False)
    no_context = Bool(True)
    no_timestamps = Bool(False)
    single_segment = Bool(False)
    print_special = Bool(False)
    print_progress = Bool(True)
    print_realtime = Bool(False)
    print_timestamps = Bool(True)

    token_timestamps = Bool(False)
    thold_pt = Float(0.01)
    thold_ptsum = Float(0.01)
    max_len = Int(0)
    split_on_word = Bool(False)
    max_tokens = Int(0)

    debug_mode = Bool(False)
    audio_ctx = Int(0)
    tdrz_enable = Bool(False)
    suppress_regex = Text()

    initial_prompt = Text()
    carry_initial_prompt = Bool(False)
    prompt_tokens = Array("const whisper_token *")
    prompt_n_tokens = Int(0)

    language = Text("en")
    detect_language = Bool(False)

    suppress_blank = Bool(True)
    suppress_nst = Bool(False)

    temperature = Float(0.0)
    max_initial_ts = Float(1.0)
    length_penalty = Float(-1.0)

    temperature_inc = Float(0.2)
    entropy_thold = Float(2.4)
    logprob_thold = Float(-1.0)
    no_speech_thold = Float(0.6)

    greedy = Nested(whisper_full_params_greedy, "struct { int best_of; }")
    beam_search = Nested(whisper_full_params_beam_search, "struct { int beam_size; float patience; }")

    new_segment_callback = Callback("whisper_new_segment_callback")
    new_segment_callback_user_data = Object()
    progress_callback = Callback("whisper_progress_callback")
    progress_callback_user_data = Object()
    encoder_begin_callback = Callback("whisper_encoder_begin_callback")
    encoder_begin_callback_user_data = Object()
    abort_callback = Callback("ggml_abort_callback")
    abort_callback_user_data = Object()
    logits_filter_callback = Callback("whisper_logits_filter_callback")
    logits_filter_callback_user_data = Object()

    grammar_rules = Rules("const whisper_grammar_element **")
    n_grammar_rules = Int(0, "size_t")
    i_start_rule = Int(0, "size_t")
    grammar_penalty = Float(100.0)

    vad = Bool(False)
    vad_model_path = Text()
    vad_params = Nested(whisper_vad_params)
