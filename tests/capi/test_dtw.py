"""Token times by attention through the C API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.capi.test_defects import BEG, EOT, NOISE, WORD, scripted, spans
from whispyx import capi


@pytest.mark.parametrize("flash_attn", [True, False])
def test_t1_with_dtw_each_segment_is_reported_once_in_order(model: Path, flash_attn: bool) -> None:
    wanted = capi.whisper_context_default_params()
    wanted.flash_attn, wanted.dtw_token_timestamps = flash_attn, True
    wanted.dtw_aheads_preset, wanted.dtw_n_top = capi.WHISPER_AHEADS_N_TOP_MOST, 2
    ctx = capi.whisper_init_from_file_with_params(str(model), wanted)
    assert ctx is not None
    seen: list[int] = []

    def on_new(context: Any, state: Any, n_new: int, data: Any) -> None:
        n = capi.whisper_full_n_segments(context)
        for i in range(n - n_new, n):
            seen.append(capi.whisper_full_get_segment_t0(context, i))
            for j in range(capi.whisper_full_n_tokens(context, i)):
                token = capi.whisper_full_get_token_data(context, i, j)
                assert (token.t_dtw >= 0) == (token.id < EOT)

    tokens = [BEG, WORD, BEG + 200, BEG + 200, WORD + 1, WORD + 2, BEG + 400, BEG + 400, EOT]
    assert capi.whisper_full(ctx, scripted(tokens, new_segment_callback=on_new), NOISE, 16000 * 24) == 0
    assert seen == [0, 400, 800, 1200, 1600, 2000] == [t0 for t0, _ in spans(ctx)]
    times = [
        capi.whisper_full_get_token_data(ctx, i, j).t_dtw
        for i in range(6)
        for j in range(capi.whisper_full_n_tokens(ctx, i))
        if capi.whisper_full_get_token_id(ctx, i, j) < EOT
    ]
    assert times == sorted(times) and times[-1] <= 2400
    # Windows that are too short for an alignment, and the last moment of the audio: no crash.
    for n in (1760, 2400, 16000):
        assert capi.whisper_full(ctx, scripted([BEG, WORD, BEG + 5, BEG + 5, EOT]), NOISE, n) == 0
    capi.whisper_free(ctx)
