"""A real model on real speech through the C API."""

from __future__ import annotations

import re
from typing import Any

import pytest
import soundfile

from tests import data
from whispyx import capi
from whispyx.models import SAMPLES


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@pytest.mark.parametrize("strategy", [capi.WHISPER_SAMPLING_GREEDY, capi.WHISPER_SAMPLING_BEAM_SEARCH])
def test_speech_is_recognised_with_times_of_every_kind(strategy: Any) -> None:
    path = data.or_skip(data.model_file, "tiny.en")
    sound = soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")[0]
    wanted = capi.whisper_context_default_params()
    wanted.dtw_token_timestamps, wanted.dtw_aheads_preset = True, capi.WHISPER_AHEADS_TINY_EN
    ctx = capi.whisper_init_from_file_with_params(path, wanted)
    assert ctx is not None
    params = capi.whisper_full_default_params(strategy)
    params.n_threads, params.token_timestamps, params.beam_search.beam_size = 2, True, 3
    params.vad, params.vad_model_path = True, str(data.or_skip(data.silero_ggml))
    assert capi.whisper_full(ctx, params, sound, len(sound)) == 0
    n = capi.whisper_full_n_segments(ctx)
    text = b"".join(capi.whisper_full_get_segment_text(ctx, i) for i in range(n)).decode()
    assert words_of(text) == words_of(SAMPLES["jfk"].text)
    end = 100 * len(sound) // 16000
    last = 0
    for i in range(n):
        for j in range(capi.whisper_full_n_tokens(ctx, i)):
            token = capi.whisper_full_get_token_data(ctx, i, j)
            if token.id < capi.whisper_token_eot(ctx):
                assert last <= token.t0 <= token.t1 <= end + 10
                assert 0 <= token.t_dtw <= end
                last = token.t0
    assert capi.whisper_full_n_vad_segments(ctx) > 0
    capi.whisper_free(ctx)
