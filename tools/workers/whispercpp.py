"""whisper.cpp as a worker process: commands in, answers out, one JSON object a line.

Runs inside the environment of the peer `pywhispercpp` (see peers.py), whose wheel brings libwhisper. The C functions
are called directly, since the wrapper does not hand out logits or timings. Commands:

load    model, flash_attn, aheads          -> load_s
full    samples (.npy, float32), params    -> code, language, segments, timings, seconds
fresh   model, flash_attn, aheads, samples, params, n_processors
                                           -> the same, on a model and a state that nothing has used before
speech  vad_model, samples, vad_params, n_threads
                                           -> probs, regions (cs), seconds: what the voice activity detector finds
logits  samples, seek, batches, n_threads, out -> writes to `out`, float32 (len(batches), n_vocab): last row of each
rss     (nothing)                          -> peak_kb

`aheads` chooses the heads that align tokens with the sound (DTW), as {"preset", "n_top", "heads"}; absent: none.
`params` are fields of whisper_full_params under their own names, but for `strategy`, a name, `grammar`, an object
{"rules": lists of [type, value], "start"}, and `vad_params`, an object.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import sys
import time
from typing import Any

import numpy as np

VERSION = "1.8.5"  # the layouts below are those of this version


def structure(name: str, **fields: Any) -> type[c.Structure]:
    return type(name, (c.Structure,), {"_fields_": list(fields.items())})


ContextParams = structure(
    "ContextParams",
    use_gpu=c.c_bool,
    flash_attn=c.c_bool,
    gpu_device=c.c_int,
    dtw_token_timestamps=c.c_bool,
    dtw_aheads_preset=c.c_int,
    dtw_n_top=c.c_int,
    n_heads=c.c_size_t,
    heads=c.c_void_p,
    dtw_mem_size=c.c_size_t,
)
VadParams = structure(
    "VadParams",
    threshold=c.c_float,
    min_speech_duration_ms=c.c_int,
    min_silence_duration_ms=c.c_int,
    max_speech_duration_s=c.c_float,
    speech_pad_ms=c.c_int,
    samples_overlap=c.c_float,
)
FullParams = structure(
    "FullParams",
    strategy=c.c_int,
    n_threads=c.c_int,
    n_max_text_ctx=c.c_int,
    offset_ms=c.c_int,
    duration_ms=c.c_int,
    translate=c.c_bool,
    no_context=c.c_bool,
    no_timestamps=c.c_bool,
    single_segment=c.c_bool,
    print_special=c.c_bool,
    print_progress=c.c_bool,
    print_realtime=c.c_bool,
    print_timestamps=c.c_bool,
    token_timestamps=c.c_bool,
    thold_pt=c.c_float,
    thold_ptsum=c.c_float,
    max_len=c.c_int,
    split_on_word=c.c_bool,
    max_tokens=c.c_int,
    debug_mode=c.c_bool,
    audio_ctx=c.c_int,
    tdrz_enable=c.c_bool,
    suppress_regex=c.c_char_p,
    initial_prompt=c.c_char_p,
    carry_initial_prompt=c.c_bool,
    prompt_tokens=c.c_void_p,
    prompt_n_tokens=c.c_int,
    language=c.c_char_p,
    detect_language=c.c_bool,
    suppress_blank=c.c_bool,
    suppress_nst=c.c_bool,
    temperature=c.c_float,
    max_initial_ts=c.c_float,
    length_penalty=c.c_float,
    temperature_inc=c.c_float,
    entropy_thold=c.c_float,
    logprob_thold=c.c_float,
    no_speech_thold=c.c_float,
    best_of=c.c_int,
    beam_size=c.c_int,
    patience=c.c_float,
    callbacks=c.c_void_p * 10,
    grammar_rules=c.c_void_p,
    n_grammar_rules=c.c_size_t,
    i_start_rule=c.c_size_t,
    grammar_penalty=c.c_float,
    vad=c.c_bool,
    vad_model_path=c.c_char_p,
    vad_params=VadParams,
)
TokenData = structure(
    "TokenData",
    id=c.c_int32,
    tid=c.c_int32,
    p=c.c_float,
    plog=c.c_float,
    pt=c.c_float,
    ptsum=c.c_float,
    t0=c.c_int64,
    t1=c.c_int64,
    t_dtw=c.c_int64,
    vlen=c.c_float,
)
STRATEGIES = {"greedy": 0, "beam_search": 1}
# enum whisper_alignment_heads_preset, by the names that models have
PRESETS = {
    name: number
    for number, name in enumerate(
        (
            "none n_top_most custom tiny.en tiny base.en base small.en small medium.en medium "
            "large-v1 large-v2 large-v3 large-v3-turbo"
        ).split()
    )
}
# as whisper_token_data has it: as the answers have it
TOKEN_FIELDS = {name: name for name in ("tid", "p", "plog", "pt", "ptsum", "t_dtw")} | {
    "t0": "token_t0",
    "t1": "token_t1",
}
TIMINGS = ("sample_ms", "encode_ms", "decode_ms", "batchd_ms", "prompt_ms")
Element = structure("Element", type=c.c_int, value=c.c_uint32)
Ahead = structure("Ahead", n_text_layer=c.c_int, n_head=c.c_int)
VadContextParams = structure("VadContextParams", n_threads=c.c_int, use_gpu=c.c_bool, gpu_device=c.c_int)
Timings = structure("Timings", **dict.fromkeys(TIMINGS, c.c_float))


def open_library() -> c.CDLL:
    """Load the wrapper, then open the very libwhisper that it brought into the process."""
    import _pywhispercpp  # type: ignore[import-not-found]  # noqa: F401

    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libwhisper" in line)
    lib = c.CDLL(path)
    p, i, i64, f = c.c_void_p, c.c_int, c.c_int64, c.c_float
    floats, ints = c.POINTER(c.c_float), c.POINTER(c.c_int32)
    for name, result, *args in (
        ("whisper_version", c.c_char_p),
        ("whisper_context_default_params", ContextParams),
        ("whisper_full_default_params", FullParams, i),
        ("whisper_init_from_file_with_params", p, c.c_char_p, ContextParams),
        ("whisper_free", None, p),
        ("whisper_full", i, p, FullParams, floats, i),
        ("whisper_full_parallel", i, p, FullParams, floats, i, i),
        ("whisper_full_lang_id", i, p),
        ("whisper_lang_str", c.c_char_p, i),
        ("whisper_full_n_segments", i, p),
        ("whisper_full_n_tokens", i, p, i),
        ("whisper_full_get_segment_t0", i64, p, i),
        ("whisper_full_get_segment_t1", i64, p, i),
        ("whisper_full_get_segment_text", c.c_char_p, p, i),
        ("whisper_full_get_segment_no_speech_prob", f, p, i),
        ("whisper_full_get_segment_speaker_turn_next", c.c_bool, p, i),
        ("whisper_full_get_token_data", TokenData, p, i, i),
        ("whisper_get_timings", c.POINTER(Timings), p),
        ("whisper_reset_timings", None, p),
        ("whisper_pcm_to_mel", i, p, floats, i, i),
        ("whisper_encode", i, p, i, i),
        ("whisper_decode", i, p, ints, i, i, i),
        ("whisper_get_logits", floats, p),
        ("whisper_n_vocab", i, p),
        ("whisper_vad_default_params", VadParams),
        ("whisper_vad_default_context_params", VadContextParams),
        ("whisper_vad_init_from_file_with_params", p, c.c_char_p, VadContextParams),
        ("whisper_vad_free", None, p),
        ("whisper_vad_n_probs", i, p),
        ("whisper_vad_probs", floats, p),
        ("whisper_vad_segments_from_samples", p, p, VadParams, floats, i),
        ("whisper_vad_segments_n_segments", i, p),
        ("whisper_vad_segments_get_segment_t0", f, p, i),
        ("whisper_vad_segments_get_segment_t1", f, p, i),
        ("whisper_vad_free_segments", None, p),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, args
    assert c.sizeof(FullParams) == 304 and c.sizeof(ContextParams) == 48
    version = lib.whisper_version().decode()
    if version != VERSION:
        raise RuntimeError(f"this worker knows the structures of whisper.cpp {VERSION}, found {version}")
    return lib


def peak_kb() -> int:
    """Most memory this program has held. (ru_maxrss would count what the parent held when it started us.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


class Worker:
    """One context at a time, kept between commands."""

    def __init__(self) -> None:
        self.lib = open_library()
        self.ctx: int | None = None
        self.log = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)
        self.lib.whisper_log_set(self.log, None)

    def load(self, model: str, flash_attn: bool, aheads: dict[str, Any] | None = None) -> dict[str, Any]:
        self._free()
        params = self.lib.whisper_context_default_params()
        params.use_gpu, params.flash_attn = False, flash_attn
        if aheads:
            params.dtw_token_timestamps = True
            params.dtw_aheads_preset = PRESETS[aheads["preset"]]
            params.dtw_n_top = aheads.get("n_top", -1)
            heads = (Ahead * len(aheads.get("heads", ())))(*map(tuple, aheads.get("heads", ())))
            params.n_heads, params.heads = len(heads), c.cast(heads, c.c_void_p)
            self.heads = heads  # read whenever a state is made
        start = time.perf_counter()
        self.ctx = self.lib.whisper_init_from_file_with_params(os.fsencode(model), params)
        if not self.ctx:
            raise RuntimeError(f"whisper.cpp cannot load {model}")
        return {"load_s": time.perf_counter() - start}

    def _free(self) -> None:
        if self.ctx:
            self.lib.whisper_free(self.ctx)
        self.ctx = None

    @staticmethod
    def _samples(path: str) -> tuple[Any, int, Any]:
        array = np.ascontiguousarray(np.load(path), np.float32)
        return array.ctypes.data_as(c.POINTER(c.c_float)), len(array), array

    def _params(self, params: dict[str, Any]) -> tuple[Any, list[Any]]:
        """Return whisper_full_params and what must live as long as they do."""
        full_params = self.lib.whisper_full_default_params(STRATEGIES[params.get("strategy", "greedy")])
        full_params.print_progress = False
        keep: list[Any] = []
        for name, value in params.items():
            if name == "strategy":
                continue
            if name == "prompt_tokens":
                keep.append((c.c_int32 * len(value))(*value))
                full_params.prompt_tokens, full_params.prompt_n_tokens = c.cast(keep[-1], c.c_void_p), len(value)
            elif name == "grammar":
                keep += [(Element * len(rule))(*map(tuple, rule)) for rule in value["rules"]]
                rules = (c.c_void_p * len(value["rules"]))(
                    *(c.addressof(rule) for rule in keep[-len(value["rules"]) :])
                )
                keep.append(rules)
                full_params.grammar_rules = c.cast(rules, c.c_void_p)
                full_params.n_grammar_rules, full_params.i_start_rule = len(rules), value["start"]
            elif name == "vad_params":
                for field, number in value.items():
                    self._set(full_params.vad_params, field, number)
            else:
                self._set(full_params, name, value)
        return full_params, keep

    @staticmethod
    def _set(struct: c.Structure, name: str, value: Any) -> None:
        if name not in dict(struct._fields_):  # an attribute of that name would be made, and do nothing
            raise AttributeError(f"{type(struct).__name__} has no field {name}")
        setattr(struct, name, value.encode() if isinstance(value, str) else value)

    def full(self, samples: str, params: dict[str, Any], n_processors: int = 1) -> dict[str, Any]:
        lib, ctx = self.lib, self.ctx
        pointer, n, keep = self._samples(samples)
        full_params, keep_too = self._params(params)
        lib.whisper_reset_timings(ctx)
        start = time.perf_counter()
        if n_processors == 1:
            code = lib.whisper_full(ctx, full_params, pointer, n)
        else:
            code = lib.whisper_full_parallel(ctx, full_params, pointer, n, n_processors)
        seconds = time.perf_counter() - start
        del keep, keep_too
        timings = lib.whisper_get_timings(ctx).contents
        return {
            "code": code,
            "language": (lib.whisper_lang_str(lib.whisper_full_lang_id(ctx)) or b"").decode(),
            "segments": [self._segment(i) for i in range(lib.whisper_full_n_segments(ctx))],
            "seconds": seconds,
            "timings": {name: getattr(timings, name) for name in TIMINGS},
        }

    def _segment(self, i: int) -> dict[str, Any]:
        lib, ctx = self.lib, self.ctx
        data = [lib.whisper_full_get_token_data(ctx, i, j) for j in range(lib.whisper_full_n_tokens(ctx, i))]
        return {
            "t0": lib.whisper_full_get_segment_t0(ctx, i),
            "t1": lib.whisper_full_get_segment_t1(ctx, i),
            "text_hex": lib.whisper_full_get_segment_text(ctx, i).hex(),
            "no_speech_prob": lib.whisper_full_get_segment_no_speech_prob(ctx, i),
            "speaker_turn_next": lib.whisper_full_get_segment_speaker_turn_next(ctx, i),
            "tokens": [t.id for t in data],
            **{TOKEN_FIELDS[name]: [getattr(t, name) for t in data] for name in TOKEN_FIELDS},
        }

    def fresh(
        self,
        model: str,
        flash_attn: bool,
        samples: str,
        params: dict[str, Any],
        n_processors: int = 1,
        aheads: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        # The random numbers of a state's first decoder go on from call to call: only a new state begins at its seed.
        self.load(model, flash_attn, aheads)
        return self.full(samples, params, n_processors)

    def speech(self, vad_model: str, samples: str, vad_params: dict[str, Any], n_threads: int = 4) -> dict[str, Any]:
        lib = self.lib
        pointer, n, keep = self._samples(samples)
        params = lib.whisper_vad_default_params()
        for field, number in vad_params.items():
            self._set(params, field, number)
        context = lib.whisper_vad_default_context_params()
        context.n_threads = n_threads
        vad = lib.whisper_vad_init_from_file_with_params(os.fsencode(vad_model), context)
        if not vad:
            raise RuntimeError(f"whisper.cpp cannot load {vad_model}")
        start = time.perf_counter()
        found = lib.whisper_vad_segments_from_samples(vad, params, pointer, n)
        seconds = time.perf_counter() - start
        del keep
        if not found:
            raise RuntimeError("whisper.cpp failed to detect speech")
        first, last = lib.whisper_vad_segments_get_segment_t0, lib.whisper_vad_segments_get_segment_t1
        regions = [(first(found, i), last(found, i)) for i in range(lib.whisper_vad_segments_n_segments(found))]
        probs = lib.whisper_vad_probs(vad)[: lib.whisper_vad_n_probs(vad)]
        lib.whisper_vad_free_segments(found)
        lib.whisper_vad_free(vad)
        return {"probs": probs, "regions": regions, "seconds": seconds}

    def logits(self, samples: str, seek: int, batches: list[list[int]], n_threads: int, out: str) -> dict[str, Any]:
        lib, ctx = self.lib, self.ctx
        pointer, n, keep = self._samples(samples)
        if lib.whisper_pcm_to_mel(ctx, pointer, n, n_threads) or lib.whisper_encode(ctx, seek, n_threads):
            raise RuntimeError("whisper.cpp failed to encode")
        del keep
        n_vocab, n_past, rows = lib.whisper_n_vocab(ctx), 0, []
        for batch in batches:
            if lib.whisper_decode(ctx, (c.c_int32 * len(batch))(*batch), len(batch), n_past, n_threads):
                raise RuntimeError("whisper.cpp failed to decode")
            n_past += len(batch)
            whole = np.ctypeslib.as_array(lib.whisper_get_logits(ctx), (len(batch), n_vocab))
            rows.append(whole[-1].copy())
        np.save(out, np.stack(rows))
        return {}

    def rss(self) -> dict[str, Any]:
        return {"peak_kb": peak_kb()}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the library prints must not get between the answers
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
