"""The structs of whisper.h that are small or plain; whisper_full_params has a file of its own.

Fields, their order, types and defaults are those of the header. All times of tokens are in units of 10 ms.
"""

from __future__ import annotations

from whispyx.capi._struct import FLT_MAX, Array, Bool, Callback, Enum, Float, Int, Nested, Object, Struct
from whispyx.capi.constants import (
    WHISPER_AHEADS_NONE,
    WHISPER_GRETYPE_END,
    whisper_alignment_heads_preset,
    whisper_gretype,
)

__all__ = [
    "whisper_ahead",
    "whisper_aheads",
    "whisper_context_params",
    "whisper_grammar_element",
    "whisper_model_loader",
    "whisper_timings",
    "whisper_token_data",
    "whisper_vad_context_params",
    "whisper_vad_params",
]


class whisper_ahead(Struct):
    """One alignment head: a decoder layer and a head in it, both counted from 0."""

    __slots__ = ()
    n_text_layer = Int()
    n_head = Int()


class whisper_aheads(Struct):
    """A list of alignment heads.

    `heads` is a sequence of `whisper_ahead`, or of (layer, head) pairs; the first `n_heads` of them count. Changing
    the sequence has no effect on contexts that were made with it.
    """

    __slots__ = ()
    n_heads = Int(c_type="size_t")
    heads = Array("const whisper_ahead *")


class whisper_context_params(Struct):
    """How a model is loaded. `dtw_mem_size` is accepted and not needed: the memory follows the data."""

    __slots__ = ()
    use_gpu = Bool(True)
    flash_attn = Bool(True)
    gpu_device = Int(0)
    dtw_token_timestamps = Bool(False)
    dtw_aheads_preset = Enum(whisper_alignment_heads_preset, WHISPER_AHEADS_NONE)
    dtw_n_top = Int(-1)
    dtw_aheads = Nested(whisper_aheads)
    dtw_mem_size = Int(128 * 1024 * 1024, "size_t")


class whisper_token_data(Struct):
    """One token of a segment, or of the text so far in a logits filter.

    p and plog are its probability and the logarithm of it; tid, pt and ptsum are the likeliest timestamp token at that
    step, its share of the timestamps, and their sum. t0, t1 and t_dtw are -1 where they were not asked for.
    """

    __slots__ = ()
    id = Int(c_type="whisper_token")
    tid = Int(c_type="whisper_token")
    p = Float()
    plog = Float()
    pt = Float()
    ptsum = Float()
    t0 = Int(-1, "int64_t")
    t1 = Int(-1, "int64_t")
    t_dtw = Int(-1, "int64_t")
    vlen = Float()


class whisper_timings(Struct):
    """Milliseconds per sampled token, encoder run, single token, token of a small batch and token of a prompt."""

    __slots__ = ()
    sample_ms = Float()
    encode_ms = Float()
    decode_ms = Float()
    batchd_ms = Float()
    prompt_ms = Float()


class whisper_vad_params(Struct):
    """How speech is told from silence. `max_speech_duration_s` keeps its fraction."""

    __slots__ = ()
    threshold = Float(0.5)
    min_speech_duration_ms = Int(250)
    min_silence_duration_ms = Int(100)
    max_speech_duration_s = Float(FLT_MAX)
    speech_pad_ms = Int(30)
    samples_overlap = Float(0.1)


class whisper_vad_context_params(Struct):
    """How a voice activity model is loaded. It runs on the CPU, whatever `use_gpu` says."""

    __slots__ = ()
    n_threads = Int(4)
    use_gpu = Bool(False)
    gpu_device = Int(0)


class whisper_grammar_element(Struct):
    """One element of a grammar rule: a character (its code point), a reference to a rule (its index), or a mark."""

    __slots__ = ()
    type = Enum(whisper_gretype, WHISPER_GRETYPE_END)
    value = Int(0, "uint32_t")


class whisper_model_loader(Struct):
    """Where a model's bytes come from.

    read(context, output, read_size) fills `output`, a writable memoryview of `read_size` bytes, and returns how many
    it wrote. A short count is asked again for the rest; None or a count that cannot be right is not believed, and what
    lies in `output` counts. eof(context) says whether the data has run out. close(context) is called once, also when
    loading fails. An exception in any of them reaches the caller.
    """

    __slots__ = ()
    context = Object()
    read = Callback("size_t (*)(void * ctx, void * output, size_t read_size)")
    eof = Callback("bool (*)(void * ctx)")
    close = Callback("void (*)(void * ctx)")
