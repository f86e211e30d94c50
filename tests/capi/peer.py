"""Asks whisper.cpp: run inside the environment that has it, with a function's name and its arguments as JSON."""

from __future__ import annotations

import ctypes as c
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from tools.workers.whispercpp import VadContextParams, VadParams, open_library

NUMBERS = (
    "n_len n_text_ctx n_audio_ctx is_multilingual model_n_vocab model_n_audio_ctx model_n_audio_state "
    "model_n_audio_head model_n_audio_layer model_n_text_ctx model_n_text_state model_n_text_head "
    "model_n_text_layer model_n_mels model_ftype model_type n_vocab token_eot token_sot token_solm "
    "token_prev token_nosp token_not token_beg token_translate token_transcribe "
).split()


def plain(struct: Any) -> dict[str, Any]:
    """Fields of a struct that JSON can hold; pointers become null or true."""
    out: dict[str, Any] = {}
    for name, kind in struct._fields_:
        value = getattr(struct, name)
        if kind is c.c_void_p:
            value = None if value is None else True
        elif isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, c.Structure):
            value = plain(value)
        elif isinstance(value, c.Array):
            value = [None if item is None else item for item in value]
        out[name] = value
    return out


class Library:
    """whisper.cpp with the few more functions that these tests ask for."""

    def __init__(self) -> None:
        self.lib = open_library()
        lib = self.lib
        self.quiet = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)
        lib.whisper_log_set(self.quiet, None)
        lib.whisper_vad_default_params.restype = VadParams
        lib.whisper_vad_default_context_params.restype = VadContextParams
        for name in ("lang_str", "lang_str_full", "model_type_readable", "token_to_str"):
            getattr(lib, f"whisper_{name}").restype = c.c_char_p
        for name in NUMBERS:
            function = getattr(lib, f"whisper_{name}")
            function.restype, function.argtypes = c.c_int, [c.c_void_p]
        lib.whisper_token_to_str.argtypes = [c.c_void_p, c.c_int]
        lib.whisper_model_type_readable.argtypes = [c.c_void_p]
        lib.whisper_token_lang.argtypes = [c.c_void_p, c.c_int]

    def defaults(self) -> dict[str, Any]:
        lib = self.lib
        return {
            "context": plain(lib.whisper_context_default_params()),
            "full": [plain(lib.whisper_full_default_params(strategy)) for strategy in (0, 1)],
            "vad": plain(lib.whisper_vad_default_params()),
            "vad_context": plain(lib.whisper_vad_default_context_params()),
        }

    def languages(self) -> dict[str, Any]:
        lib = self.lib
        n = lib.whisper_lang_max_id() + 1
        codes = [lib.whisper_lang_str(i).decode() for i in range(n)]
        names = [lib.whisper_lang_str_full(i).decode() for i in range(n)]
        wanted = [*codes, *names, "DE", "German", "xx", "", "auto"]
        ids = {text: lib.whisper_lang_id(text.encode()) for text in wanted}
        return {"codes": codes, "names": names, "ids": ids, "none": lib.whisper_lang_str(n) is None}

    def _open(self, model: str) -> int:
        params = self.lib.whisper_context_default_params()
        params.use_gpu = params.flash_attn = False
        ctx = self.lib.whisper_init_from_file_with_params(os.fsencode(model), params)
        assert ctx
        return int(ctx)

    def facts(self, model: str) -> dict[str, Any]:
        lib, ctx = self.lib, self._open(model)
        n = lib.whisper_n_vocab(ctx)
        return {
            "numbers": {name: getattr(lib, f"whisper_{name}")(ctx) for name in NUMBERS},
            "type": lib.whisper_model_type_readable(ctx).decode(),
            "languages": [lib.whisper_token_lang(ctx, i) for i in range(99)],
            "tokens": [lib.whisper_token_to_str(ctx, i).hex() for i in range(n)],
        }

    def vad(self, model: str, samples: str) -> dict[str, Any]:
        """Probabilities and segments of whisper_vad_* with default parameters; `samples` is a .npy file."""
        lib = self.lib
        for name, result, *arguments in (
            ("init_from_file_with_params", c.c_void_p, c.c_char_p, VadContextParams),
            ("segments_from_samples", c.c_void_p, c.c_void_p, VadParams, c.POINTER(c.c_float), c.c_int),
            ("n_probs", c.c_int, c.c_void_p),
            ("probs", c.POINTER(c.c_float), c.c_void_p),
            ("segments_n_segments", c.c_int, c.c_void_p),
            ("segments_get_segment_t0", c.c_float, c.c_void_p, c.c_int),
            ("segments_get_segment_t1", c.c_float, c.c_void_p, c.c_int),
        ):
            function = getattr(lib, f"whisper_vad_{name}")
            function.restype, function.argtypes = result, arguments
        sound = np.load(samples)
        vctx = lib.whisper_vad_init_from_file_with_params(os.fsencode(model), lib.whisper_vad_default_context_params())
        found = lib.whisper_vad_segments_from_samples(
            vctx, lib.whisper_vad_default_params(), sound.ctypes.data_as(c.POINTER(c.c_float)), len(sound)
        )
        spans = [
            [lib.whisper_vad_segments_get_segment_t0(found, i), lib.whisper_vad_segments_get_segment_t1(found, i)]
            for i in range(lib.whisper_vad_segments_n_segments(found))
        ]
        return {"probs": lib.whisper_vad_probs(vctx)[: lib.whisper_vad_n_probs(vctx)], "spans": spans}

    def lengths(self, model: str, samples: list[int]) -> list[int]:
        """whisper_n_len after so many samples."""
        lib, ctx = self.lib, self._open(model)
        out = []
        for n in samples:
            sound = np.zeros(n, np.float32)
            assert lib.whisper_pcm_to_mel(ctx, sound.ctypes.data_as(c.POINTER(c.c_float)), n, 1) == 0
            out.append(lib.whisper_n_len(ctx))
        return out


if __name__ == "__main__":
    keep = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = getattr(Library(), sys.argv[1])(**json.loads(sys.argv[2]))
    print(json.dumps(answer), file=keep, flush=True)
