"""Known defects of whisper.cpp, by their number in our list of them: what happens here instead.

Those that show in one part of the interface are tested beside it; names of tests begin with the number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capi.conftest import SOUND, near, quick, script, spans
from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from whispyx import capi

NOISE = np.random.default_rng(8).normal(0, 0.1, 16000 * 70).astype(np.float32)
BEG, EOT, WORD = 50364, 50257, 400
CHILD = Path(__file__).with_name("limited_child.py")


def scripted(tokens: list[int], **fields: Any) -> Any:
    return quick(logits_filter_callback=script(tokens), **fields)


def test_m1_and_m2_memory_that_runs_out_costs_one_call_and_no_state() -> None:
    model = pair(TinyModel(n_state=256, n_head=4)).path  # its cache for eight decoders takes 16 MB
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(CHILD), str(model)],
        capture_output=True,
        text=True,
        cwd=CHILD.parents[2],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "before": 0,
        "many": [-7] * 3,
        "state": [True] * 3,
        "model": [True] * 3,
        "after": 0,
        "same": True,
        "with room": 0,
    }


def test_m9_many_states_work_at_the_same_time(ctx: Any) -> None:
    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0
    expected = spans(ctx)
    states = [capi.whisper_init_state(ctx) for _ in range(24)]
    for state in states:
        assert state is not None
        assert capi.whisper_full_with_state(ctx, state, quick(), SOUND, 16000) == 0
    for state in states:
        n = capi.whisper_full_n_segments_from_state(state)
        assert n == len(expected)
        capi.whisper_free_state(state)


def test_m10_eight_beams_never_run_out_of_cache(ctx: Any) -> None:
    def long_text(context: Any, state: Any, tokens: Any, n: int, logits: Any, data: Any) -> None:
        logits[EOT:] -= 1000.0 if n < 100 else -1000.0

    params = capi.whisper_full_default_params(capi.WHISPER_SAMPLING_BEAM_SEARCH)
    params.n_threads, params.beam_search.beam_size, params.temperature_inc = 1, 8, 0.0
    params.single_segment, params.logits_filter_callback = True, long_text
    for _ in range(2):
        assert capi.whisper_full(ctx, params, SOUND, len(SOUND)) == 0
        assert capi.whisper_full_n_tokens(ctx, 0) >= 100


def test_b1_a_first_temperature_above_1_ends(ctx: Any) -> None:
    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], temperature=1.5, temperature_inc=0.2)
    assert capi.whisper_full(ctx, params, SOUND, len(SOUND)) == 0
    assert spans(ctx) == near([(0, 400)])


def test_b2_and_b3_times_without_timestamps_lie_inside_the_audio(ctx: Any) -> None:
    n_len = 1099
    for fields in ({"no_timestamps": True}, {"single_segment": True}, {"no_timestamps": True, "single_segment": True}):
        params = scripted([WORD, WORD + 1, EOT], token_timestamps=True, **fields)
        assert capi.whisper_full(ctx, params, NOISE, 176000) == 0
        assert len(spans(ctx)) == 1
        t0, t1 = spans(ctx)[0]
        assert t0 == 0 and 0 < t1 <= n_len + 1
        for j in range(capi.whisper_full_n_tokens(ctx, 0)):
            token = capi.whisper_full_get_token_data(ctx, 0, j)
            assert token.tid >= BEG
            assert t0 <= token.t0 <= token.t1 <= t1


def test_b5_a_second_of_audio_is_recognised(ctx: Any) -> None:
    for n in (16000, 8000, 3200):
        assert capi.whisper_full(ctx, scripted([BEG, WORD, BEG + 5, BEG + 5, EOT]), SOUND, n) == 0
        assert capi.whisper_full_n_segments(ctx) >= 1, n


def test_b14_language_detection_begins_at_the_offset(ctx: Any) -> None:
    def language(**fields: Any) -> int:
        assert capi.whisper_full(ctx, quick(detect_language=True, **fields), sound, len(sound)) == 0
        return capi.whisper_full_lang_id(ctx)

    sound = np.concatenate([np.zeros(16000 * 40, np.float32), 10 * NOISE[: 16000 * 30]])
    assert capi.whisper_pcm_to_mel(ctx, sound, len(sound), 1) == 0
    probabilities = np.zeros(100, np.float32)
    here = capi.whisper_lang_auto_detect(ctx, 40000, 1, probabilities)
    assert language(offset_ms=40000) == here
    # An earlier call's audio_ctx has no influence.
    assert capi.whisper_full(ctx, quick(audio_ctx=10), sound, 16000) == 0
    assert language(offset_ms=40000) == here


def test_b15_a_duration_past_the_end_adds_no_windows(ctx: Any) -> None:
    windows: list[int] = []
    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], duration_ms=10_000_000)
    params.encoder_begin_callback = lambda context, state, data: windows.append(1) or True
    assert capi.whisper_full(ctx, params, SOUND, len(SOUND)) == 0
    assert spans(ctx) == near([(0, 400)]) and len(windows) == 1


@pytest.mark.parametrize("n_max_text_ctx", [0, 1, 2, 3, 224, 225, 448, 16384])
def test_b28_a_carried_prompt_fits_any_limit(ctx: Any, n_max_text_ctx: int) -> None:
    tokens = [BEG, WORD, WORD + 1, WORD + 2, BEG + 200, BEG + 200, EOT]
    for limit in (n_max_text_ctx, 16384, n_max_text_ctx):  # smaller than at the call before, too
        params = scripted(tokens, n_max_text_ctx=limit, carry_initial_prompt=True, no_context=False)
        params.prompt_tokens, params.prompt_n_tokens = [WORD] * 300, 300
        assert capi.whisper_full(ctx, params, NOISE, 16000 * 12) == 0
        assert spans(ctx) == near([(0, 400), (400, 800), (800, 1200)])


def test_b31_without_timestamps_windows_follow_every_30_seconds(ctx: Any) -> None:
    # A known limit, as in whisper.cpp: what follows a short text inside its window is not looked at.
    assert capi.whisper_full(ctx, scripted([WORD, EOT], no_timestamps=True), NOISE, 16000 * 70) == 0
    assert [t0 for t0, _ in spans(ctx)] == [0, 3000, 6000]


def test_p2_offsets_and_cuts_past_32_bits(ctx: Any) -> None:
    # 16000 times this offset, and 100 times these samples, need more than 31 bits.
    params = scripted([BEG, WORD, BEG + 1500, BEG + 1500, EOT], offset_ms=1_400_000)
    sound = np.zeros(16000 * 1460, np.float32)
    assert capi.whisper_full_parallel(ctx, params, sound, len(sound), 2) == 0
    assert spans(ctx) == near([(140000, 143000), (143000, 146000)])


def test_v5_fractions_of_a_second_count(ctx: Any) -> None:
    params = capi.whisper_vad_default_params()
    params.max_speech_duration_s = 0.5
    assert params.max_speech_duration_s == 0.5


@pytest.mark.parametrize("carry", [False, True])
def test_b30_a_prompt_holds_223_tokens_of_history(ctx: Any, carry: bool) -> None:
    lines: list[str] = []
    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], carry_initial_prompt=carry)
    params.prompt_tokens, params.prompt_n_tokens = [WORD] * 300, 300
    capi.whisper_reset_timings(ctx)
    assert capi.whisper_full(ctx, params, SOUND, len(SOUND)) == 0
    capi.whisper_log_set(lambda level, text, data: lines.append(text), None)
    try:
        capi.whisper_print_timings(ctx)
    finally:
        capi.whisper_log_set(None, None)
    told = next(line for line in lines if line.startswith("prompt time"))
    # start of previous text, the history, start of transcript, language, task
    assert int(told.split("/")[1].split()[0]) == 1 + 223 + 3
