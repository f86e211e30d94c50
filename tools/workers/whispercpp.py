"""whisper.cpp as a worker process: commands in, answers out, one JSON object a line.

Runs inside the environment of the peer `pywhispercpp` (see peers.py), whose wheel brings libwhisper. The C functions
are called directly, since the wrapper does not hand out logits or timings. Commands:

load    model, flash_attn                  -> load_s
full    samples (.npy, float32), params    -> code, language, segments, timings, seconds
logits  samples, seek, batches, n_threads, out -> writes to `out`, float32 (len(batches), n_vocab): last row of each
rss     (nothing)                          -> peak_kb
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
    vad_params=c.c_uint32 * 6,
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
TIMINGS = ("sample_ms", "encode_ms", "decode_ms", "batchd_ms", "prompt_ms")
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
        ("whisper_full_lang_id", i, p),
        ("whisper_lang_str", c.c_char_p, i),
        ("whisper_full_n_segments", i, p),
        ("whisper_full_n_tokens", i, p, i),
        ("whisper_full_get_segment_t0", i64, p, i),
        ("whisper_full_get_segment_t1", i64, p, i),
        ("whisper_full_get_segment_text", c.c_char_p, p, i),
        ("whisper_full_get_segment_no_speech_prob", f, p, i),
        ("whisper_full_get_token_data", TokenData, p, i, i),
        ("whisper_get_timings", c.POINTER(Timings), p),
        ("whisper_reset_timings", None, p),
        ("whisper_pcm_to_mel", i, p, floats, i, i),
        ("whisper_encode", i, p, i, i),
        ("whisper_decode", i, p, ints, i, i, i),
        ("whisper_get_logits", floats, p),
        ("whisper_n_vocab", i, p),
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

    def load(self, model: str, flash_attn: bool) -> dict[str, Any]:
        if self.ctx:
            self.lib.whisper_free(self.ctx)
        params = self.lib.whisper_context_default_params()
        params.use_gpu, params.flash_attn = False, flash_attn
        start = time.perf_counter()
        self.ctx = self.lib.whisper_init_from_file_with_params(os.fsencode(model), params)
        if not self.ctx:
            raise RuntimeError(f"whisper.cpp cannot load {model}")
        return {"load_s": time.perf_counter() - start}

    @staticmethod
    def _samples(path: str) -> tuple[Any, int, Any]:
        array = np.ascontiguousarray(np.load(path), np.float32)
        return array.ctypes.data_as(c.POINTER(c.c_float)), len(array), array

    def full(self, samples: str, params: dict[str, Any]) -> dict[str, Any]:
        lib, ctx = self.lib, self.ctx
        pointer, n, keep = self._samples(samples)
        full_params = lib.whisper_full_default_params(0)
        full_params.print_progress = False
        for name, value in params.items():
            setattr(full_params, name, value.encode() if isinstance(value, str) else value)
        lib.whisper_reset_timings(ctx)
        start = time.perf_counter()
        code = lib.whisper_full(ctx, full_params, pointer, n)
        seconds = time.perf_counter() - start
        del keep
        timings = lib.whisper_get_timings(ctx).contents
        segments = []
        for i in range(lib.whisper_full_n_segments(ctx)):
            data = [lib.whisper_full_get_token_data(ctx, i, j) for j in range(lib.whisper_full_n_tokens(ctx, i))]
            segments.append(
                {
                    "t0": lib.whisper_full_get_segment_t0(ctx, i),
                    "t1": lib.whisper_full_get_segment_t1(ctx, i),
                    "text_hex": lib.whisper_full_get_segment_text(ctx, i).hex(),
                    "no_speech_prob": lib.whisper_full_get_segment_no_speech_prob(ctx, i),
                    "tokens": [t.id for t in data],
                    "tid": [t.tid for t in data],
                    "p": [t.p for t in data],
                }
            )
        return {
            "code": code,
            "language": (lib.whisper_lang_str(lib.whisper_full_lang_id(ctx)) or b"").decode(),
            "segments": segments,
            "seconds": seconds,
            "timings": {name: getattr(timings, name) for name in TIMINGS},
        }

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
