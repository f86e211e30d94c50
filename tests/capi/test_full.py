"""Whole runs through the C API: status codes, callbacks, what the getters show and when."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capi.conftest import SOUND, near, quick, script, spans
from whispyx import capi
from whispyx.errors import ParamsError, StateError, WhispyxError

LONG = np.random.default_rng(6).normal(0, 0.1, 176000).astype(np.float32)  # 11 s
BEG, EOT = 50364, 50257
WORD = 400

CALLBACKS = ("new_segment", "progress", "encoder_begin", "abort", "logits_filter")


def scripted(tokens: Any, **fields: Any) -> Any:
    return quick(logits_filter_callback=script(tokens), **fields)


def test_a_scripted_run_gives_the_segments_that_were_observed(ctx: Any) -> None:
    # [0.00] word [4.00] [4.00] in every window: whisper.cpp 1.8.5 gives these segments, but that its last one ends at
    # 1200, behind the audio.
    assert capi.whisper_full(ctx, scripted([BEG, WORD, BEG + 200, BEG + 200, EOT]), LONG, len(LONG)) == 0
    assert spans(ctx) == near([(0, 400), (400, 800), (800, 1100)])


def test_getters_show_what_was_recognised(ctx: Any) -> None:
    params = scripted([BEG, WORD, WORD + 1, BEG + 100, BEG + 100, EOT])
    assert capi.whisper_full(ctx, params, LONG, 32000) == 0
    assert capi.whisper_full_n_segments(ctx) == 1
    n = capi.whisper_full_n_tokens(ctx, 0)
    ids = [capi.whisper_full_get_token_id(ctx, 0, i) for i in range(n)]
    assert ids[:4] == [BEG, WORD, WORD + 1, BEG + 100]
    text = capi.whisper_full_get_segment_text(ctx, 0)
    assert isinstance(text, bytes)
    assert text == b"".join(capi.whisper_token_to_str(ctx, token) for token in (WORD, WORD + 1))
    for i in range(n):
        data = capi.whisper_full_get_token_data(ctx, 0, i)
        assert isinstance(data, capi.whisper_token_data)
        assert data.id == ids[i]
        assert data.p == np.float32(capi.whisper_full_get_token_p(ctx, 0, i))
        assert (data.t0, data.t1) == (
            capi.whisper_full_get_token_t0(ctx, 0, i),
            capi.whisper_full_get_token_t1(ctx, 0, i),
        )
        assert capi.whisper_full_get_token_text(ctx, 0, i) == capi.whisper_token_to_str(ctx, ids[i])
        assert data.t_dtw == -1
    assert 0.0 <= capi.whisper_full_get_segment_no_speech_prob(ctx, 0) <= 1.0
    assert capi.whisper_full_get_segment_speaker_turn_next(ctx, 0) is False
    assert capi.whisper_full_lang_id(ctx) == 0
    assert capi.whisper_full_n_vad_segments(ctx) == 0


def test_twins_say_the_same(ctx: Any) -> None:
    assert capi.whisper_full(ctx, scripted([BEG, WORD, BEG + 100, BEG + 100, EOT]), LONG, 32000) == 0
    state, n_compared = ctx.state, 0
    for name in capi.__all__:
        if not name.endswith("_from_state") or not name.startswith("whisper_full") or "vad_segment_t" in name:
            continue
        plain = getattr(capi, name.removesuffix("_from_state"))
        indexes = (0,) * (plain.__code__.co_argcount - 1)
        first = (ctx, state) if name == "whisper_full_get_token_text_from_state" else (state,)
        assert getattr(capi, name)(*first, *indexes) == plain(ctx, *indexes), name
        n_compared += 1
    assert n_compared == 15


def test_m12_indexes_out_of_range_are_errors(ctx: Any) -> None:
    assert capi.whisper_full(ctx, scripted([BEG, WORD, BEG + 100, BEG + 100, EOT]), LONG, 32000) == 0
    n, n_tokens = capi.whisper_full_n_segments(ctx), capi.whisper_full_n_tokens(ctx, 0)
    for name in ("t0", "t1", "text", "speaker_turn_next", "no_speech_prob"):
        for i in (-1, n, 2**31 - 1):
            with pytest.raises(IndexError, match=str(i)):
                getattr(capi, f"whisper_full_get_segment_{name}")(ctx, i)
    for name in ("text", "id", "data", "p", "t0", "t1"):
        for i, j in ((-1, 0), (n, 0), (0, -1), (0, n_tokens)):
            with pytest.raises(IndexError):
                getattr(capi, f"whisper_full_get_token_{name}")(ctx, i, j)
    with pytest.raises(IndexError):
        capi.whisper_full_get_vad_segment_t0(ctx, 0)
    with pytest.raises(TypeError):
        capi.whisper_full_get_segment_text(ctx, 0.0)  # type: ignore[arg-type]


def test_the_returned_token_is_the_callers_own(ctx: Any) -> None:
    assert capi.whisper_full(ctx, scripted([BEG, WORD, BEG + 100, BEG + 100, EOT]), LONG, 32000) == 0
    data = capi.whisper_full_get_token_data(ctx, 0, 0)
    data.id = 7
    assert capi.whisper_full_get_token_id(ctx, 0, 0) == BEG


@pytest.mark.parametrize(
    ("fields", "strategy", "code"),
    [
        ({"best_of": 9}, 0, -4),
        ({"best_of": 8}, 0, 0),
        ({"best_of": 0}, 0, 0),
        ({"best_of": -5}, 0, 0),
        ({"beam_size": 9}, 1, -4),
        ({"beam_size": 2, "best_of": 9}, 1, -4),
        ({"beam_size": 2}, 1, 0),
        ({"audio_ctx": 101}, 0, -5),
        ({"audio_ctx": 100}, 0, 0),
        ({"audio_ctx": -1}, 0, 0),
        ({"language": "klingon"}, 0, -3),
        ({"language": b"klingon"}, 0, -3),
        ({"language": "yue"}, 0, -3),
        ({"language": None}, 0, 0),
        ({"language": ""}, 0, 0),
        ({"language": "auto"}, 0, 0),
        ({"language": b"german"}, 0, 0),
        ({"duration_ms": -1}, 0, 0),
        ({"duration_ms": 5}, 0, 0),
        ({"offset_ms": 10**9}, 0, 0),
        ({"max_len": -1, "max_tokens": -1, "n_max_text_ctx": -1}, 0, 0),
        ({"length_penalty": float("inf"), "entropy_thold": float("inf"), "max_initial_ts": float("nan")}, 0, 0),
        ({"temperature": -1.0}, 0, 0),
        ({"temperature_inc": -1.0}, 0, 0),
    ],
    ids=str,
)
def test_status_codes(ctx: Any, fields: dict[str, Any], strategy: int, code: int) -> None:
    params = capi.whisper_full_default_params(strategy)
    params.n_threads, params.temperature_inc = 1, 0.0
    for name, value in fields.items():
        owner = params.greedy if name == "best_of" else params.beam_search if name == "beam_size" else params
        setattr(owner, name, value)
    assert capi.whisper_full(ctx, params, SOUND, 16000) == code
    if code:
        assert capi.whisper_full_n_segments(ctx) == 0


def test_a_call_that_is_refused_leaves_no_language_of_the_call_before(ctx: Any) -> None:
    assert capi.whisper_full(ctx, quick(language="haw"), SOUND, len(SOUND)) == 0
    assert capi.whisper_full_lang_id(ctx) == capi.whisper_lang_id("haw") == 93
    assert capi.whisper_full(ctx, quick(language="xx"), SOUND, len(SOUND)) == -3
    assert capi.whisper_full_lang_id(ctx) == -1
    assert capi.whisper_full_n_segments(ctx) == 0


def test_b13_an_unknown_language_is_no_success(ctx: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert capi.whisper_full(ctx, scripted([BEG, WORD, BEG + 100, EOT]), LONG, 32000) == 0
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        assert capi.whisper_full(ctx, quick(language="klingon"), LONG, 32000) == -3
    assert "klingon" in caplog.text
    assert capi.whisper_full_n_segments(ctx) == 0


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"offset_ms": -1}, "offset_ms"),
        ({"n_threads": 0}, "n_threads"),
        ({"temperature": float("nan")}, "temperature"),
        ({"no_speech_thold": float("nan")}, "no_speech_thold"),
        ({"suppress_regex": "("}, "suppress_regex"),
        ({"prompt_tokens": [1, 2], "prompt_n_tokens": 3}, "prompt_n_tokens"),
        ({"prompt_tokens": [10**6], "prompt_n_tokens": 1}, "token 1000000"),
        ({"initial_prompt": b"\xff"}, "initial_prompt"),
        ({"grammar_rules": [[]], "n_grammar_rules": 2}, "n_grammar_rules"),
        ({"grammar_rules": [[]], "n_grammar_rules": 1, "i_start_rule": 1}, "i_start_rule"),
    ],
    ids=str,
)
def test_m11_what_kills_the_c_library_is_an_error_here(ctx: Any, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(ParamsError, match=word):
        capi.whisper_full(ctx, quick(**fields), SOUND, 16000)
    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0


def test_m11_beam_search_without_beams_is_an_error(ctx: Any) -> None:
    params = capi.whisper_full_default_params(capi.WHISPER_SAMPLING_BEAM_SEARCH)
    params.beam_search.beam_size = 0
    with pytest.raises(ParamsError, match="beam_size"):
        capi.whisper_full(ctx, params, SOUND, 16000)


def test_an_english_only_model_ignores_language_and_task(english: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert capi.whisper_full(english, quick(), SOUND, 16000) == 0
    expected = [capi.whisper_full_get_segment_text(english, i) for i in range(capi.whisper_full_n_segments(english))]
    for fields in ({"language": "de"}, {"translate": True}, {"language": "auto"}, {"language": None}):
        assert capi.whisper_full(english, quick(**fields), SOUND, 16000) == 0
        n = capi.whisper_full_n_segments(english)
        assert [capi.whisper_full_get_segment_text(english, i) for i in range(n)] == expected
        assert capi.whisper_full_lang_id(english) == 0


def test_detect_language_stores_it_and_transcribes_nothing(ctx: Any) -> None:
    assert capi.whisper_full(ctx, quick(detect_language=True), SOUND, len(SOUND)) == 0
    assert capi.whisper_full_n_segments(ctx) == 0
    found = capi.whisper_full_lang_id(ctx)
    assert capi.whisper_lang_auto_detect(ctx, 0, 1, None) == found


def test_the_language_that_was_given_is_the_language_of_the_run(ctx: Any) -> None:
    assert capi.whisper_full_lang_id(ctx) == 0
    assert capi.whisper_full(ctx, quick(language="de"), SOUND, 16000) == 0
    assert capi.whisper_full_lang_id(ctx) == capi.whisper_lang_id("de")


@pytest.mark.parametrize(("n", "code"), [(1, -3), (1600, 0), (3000, 0), (16000, 0)])
def test_short_audio_has_the_status_that_was_observed(ctx: Any, n: int, code: int) -> None:
    assert capi.whisper_full(ctx, quick(), SOUND, n) == 0
    assert capi.whisper_full(ctx, quick(language="auto"), SOUND, n) == code
    if n < 1600:
        assert capi.whisper_full_n_segments(ctx) == 0


@pytest.mark.parametrize("samples", [None, SOUND[:0], []])
def test_m3_no_samples_on_a_fresh_state_find_nothing(ctx: Any, samples: Any) -> None:
    assert capi.whisper_full(ctx, quick(), samples, 0) == 0
    assert capi.whisper_full_n_segments(ctx) == 0


def test_m3_no_samples_never_take_up_the_audio_of_an_earlier_run(ctx: Any) -> None:
    params = scripted([BEG, WORD, BEG + 100, BEG + 100, EOT], language="de")
    assert capi.whisper_full(ctx, params, LONG, 32000) == 0
    assert capi.whisper_full_n_segments(ctx) > 0
    assert capi.whisper_full(ctx, quick(language="auto"), None, 0) == 0
    assert (capi.whisper_full_n_segments(ctx), capi.whisper_full_lang_id(ctx)) == (0, -1)


def test_no_samples_take_a_spectrogram_that_was_put_there(ctx: Any) -> None:
    params = scripted([BEG, WORD, BEG + 100, BEG + 100, EOT])
    assert capi.whisper_full(ctx, params, LONG, 32000) == 0
    expected = spans(ctx)
    assert capi.whisper_pcm_to_mel(ctx, LONG, 32000, 1) == 0
    for _ in range(2):
        assert capi.whisper_full(ctx, params, None, 0) == 0
        assert spans(ctx) == expected
    assert capi.whisper_full(ctx, params, LONG, 16000) == 0
    assert capi.whisper_full(ctx, params, None, 0) == 0
    assert spans(ctx) == []  # the run in between has replaced it


def test_new_segments_can_be_read_while_the_run_goes_on(ctx: Any) -> None:
    seen: list[tuple[int, bytes, int]] = []
    marker = object()

    def on_new(context: Any, state: Any, n_new: int, user_data: Any) -> None:
        assert context is ctx and state is ctx.state and user_data is marker
        n = capi.whisper_full_n_segments_from_state(state)
        for i in range(n - n_new, n):
            text = capi.whisper_full_get_segment_text(context, i)
            seen.append((capi.whisper_full_get_segment_t0(context, i), text, capi.whisper_full_n_tokens(context, i)))

    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], new_segment_callback=on_new)
    params.new_segment_callback_user_data = marker
    assert capi.whisper_full(ctx, params, LONG, len(LONG)) == 0
    n = capi.whisper_full_n_segments(ctx)
    assert n == 3 and len(seen) == n
    assert seen == [
        (
            capi.whisper_full_get_segment_t0(ctx, i),
            capi.whisper_full_get_segment_text(ctx, i),
            capi.whisper_full_n_tokens(ctx, i),
        )
        for i in range(n)
    ]


def test_b4_progress_goes_from_0_to_100(ctx: Any) -> None:
    seen: list[tuple[int, object]] = []
    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], progress_callback_user_data="data")
    params.progress_callback = lambda context, state, progress, data: seen.append((progress, data))
    assert capi.whisper_full(ctx, params, LONG, len(LONG)) == 0
    numbers = [progress for progress, _ in seen]
    assert numbers == sorted(numbers) and (numbers[0], numbers[-1]) == (0, 100)
    assert {data for _, data in seen} == {"data"}


def test_encoder_begin_can_stop_with_status_0(ctx: Any) -> None:
    asked: list[object] = []

    def begin(context: Any, state: Any, data: Any) -> bool:
        asked.append(data)
        return len(asked) < 2

    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], encoder_begin_callback=begin)
    assert capi.whisper_full(ctx, params, LONG, len(LONG)) == 0
    assert len(asked) == 2 and spans(ctx) == near([(0, 400)])


def test_b22_abort_has_a_status_and_keeps_what_there_is(ctx: Any) -> None:
    done: list[int] = []

    def on_new(context: Any, state: Any, n_new: int, data: Any) -> None:
        done.append(n_new)

    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], new_segment_callback=on_new)
    params.abort_callback = lambda data: len(done) >= data
    params.abort_callback_user_data = 1
    assert capi.whisper_full(ctx, params, np.tile(LONG, 20), None) in (-6, -8, -9)
    assert 1 <= capi.whisper_full_n_segments(ctx) == len(done)
    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0


def test_logits_filter_sees_the_tokens_and_writes_the_logits(ctx: Any) -> None:
    tokens = [BEG, WORD, WORD + 3, BEG + 100, BEG + 100, EOT]
    seen: list[list[int]] = []

    def look(context: Any, state: Any, so_far: Any, n: int, logits: Any, data: Any) -> None:
        assert context is ctx and state is ctx.state
        assert logits.shape == (capi.whisper_n_vocab(ctx),) and logits.dtype == np.float32 and logits.flags.writeable
        assert len(so_far) == n and all(isinstance(token, capi.whisper_token_data) for token in so_far)
        assert [token.id for token in so_far[1:]] == [token.id for token in so_far][1:]
        seen.append([token.id for token in so_far])
        data(context, state, so_far, n, logits, None)

    params = quick(logits_filter_callback=look, logits_filter_callback_user_data=script(tokens))
    assert capi.whisper_full(ctx, params, LONG, 32000) == 0
    assert seen[:4] == [tokens[:i] for i in range(4)]


def test_b32_the_logits_filter_runs_in_the_callers_thread_one_at_a_time(ctx: Any) -> None:
    threads, inside, most = set(), [0], [0]

    def look(*_: object) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threads.add(threading.get_ident())
        inside[0] -= 1

    params = quick(logits_filter_callback=look, temperature=0.8, n_threads=2)
    assert capi.whisper_full(ctx, params, SOUND, 16000) == 0
    assert threads == {threading.get_ident()} and most == [1]


class Mine(Exception):
    """Raised by callbacks of these tests."""


@pytest.mark.parametrize("name", CALLBACKS)
@pytest.mark.parametrize("error", [Mine("here"), ParamsError("here"), StateError("here"), KeyboardInterrupt()])
def test_an_exception_in_a_callback_reaches_the_caller(ctx: Any, name: str, error: BaseException) -> None:
    calls: list[int] = []

    def failing_callback(*_: object) -> bool:
        calls.append(1)
        raise error

    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT])
    setattr(params, f"{name}_callback", failing_callback)
    with pytest.raises(type(error)) as caught:
        capi.whisper_full(ctx, params, LONG, len(LONG))
    assert caught.value is error
    assert any(entry.name == "failing_callback" for entry in caught.traceback)
    assert len(calls) == 1
    n = capi.whisper_full_n_segments(ctx)
    assert n == (1 if name == "new_segment" else 0)
    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0


def test_an_exception_after_some_segments_leaves_them_readable(ctx: Any) -> None:
    def fail_later(context: Any, state: Any, progress: int, data: Any) -> None:
        if progress > 50:
            raise Mine

    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], progress_callback=fail_later)
    with pytest.raises(Mine):
        capi.whisper_full(ctx, params, LONG, len(LONG))
    assert spans(ctx) == near([(0, 400), (400, 800)])


@pytest.mark.parametrize("use", [
    lambda ctx: capi.whisper_full(ctx, quick(), SOUND, 16000),
    lambda ctx: capi.whisper_encode(ctx, 0, 1),
    lambda ctx: capi.whisper_free_state(ctx.state),
    lambda ctx: capi.whisper_free(ctx),
    lambda ctx: capi.whisper_pcm_to_mel(ctx, SOUND, 16000, 1),
    lambda ctx: capi.whisper_lang_auto_detect(ctx, 0, 1, None),
])  # fmt: skip
def test_a_callback_cannot_start_another_job_on_its_state(ctx: Any, use: Callable[[Any], Any]) -> None:
    def on_new(context: Any, state: Any, n_new: int, data: Any) -> None:
        with pytest.raises(StateError, match="in use"):
            use(context)

    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], new_segment_callback=on_new)
    assert capi.whisper_full(ctx, params, LONG, len(LONG)) == 0
    assert spans(ctx)[:2] == [(0, 400), (400, 800)]


def test_a_callback_may_use_another_state(ctx: Any) -> None:
    other = capi.whisper_init_state(ctx)
    codes: list[int] = []

    def on_new(context: Any, state: Any, n_new: int, data: Any) -> None:
        codes.append(capi.whisper_full_with_state(context, other, quick(), SOUND, 16000))

    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], new_segment_callback=on_new)
    assert capi.whisper_full(ctx, params, LONG, len(LONG)) == 0
    assert codes == [0] * 3
    capi.whisper_free_state(other)


def test_print_realtime_prints_the_segments(ctx: Any, capfd: pytest.CaptureFixture[str]) -> None:
    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT], print_realtime=True)
    assert capi.whisper_full(ctx, params, LONG, 66000) == 0
    word = capi.whisper_token_to_str(ctx, WORD).decode()
    assert f"[00:00:00.000 --> 00:00:04.000]  {word}" in capfd.readouterr().out
    params.print_timestamps = False
    assert capi.whisper_full(ctx, params, LONG, 66000) == 0
    printed = capfd.readouterr().out
    assert word in printed and "-->" not in printed


def test_params_are_taken_by_value(ctx: Any) -> None:
    params = scripted([BEG, WORD, BEG + 200, BEG + 200, EOT])

    def change(context: Any, state: Any, n_new: int, data: Any) -> None:
        params.logits_filter_callback = None
        params.language = "de"

    params.new_segment_callback = change
    assert capi.whisper_full(ctx, params, LONG, len(LONG)) == 0
    assert len(spans(ctx)) == 3 and capi.whisper_full_lang_id(ctx) == 0


def test_params_of_another_type_are_refused(ctx: Any) -> None:
    with pytest.raises(TypeError, match="whisper_full_params"):
        capi.whisper_full(ctx, {"n_threads": 1}, SOUND, 16000)  # type: ignore[arg-type]


def test_prompts_and_texts_may_be_bytes_or_text(ctx: Any) -> None:
    texts = []
    for prompt in (b" Hello", " Hello"):
        assert capi.whisper_full(ctx, quick(initial_prompt=prompt), SOUND, 16000) == 0
        texts.append([capi.whisper_full_get_segment_text(ctx, i) for i in range(capi.whisper_full_n_segments(ctx))])
    tokens = np.zeros(8, np.int32)
    n = capi.whisper_tokenize(ctx, " Hello", tokens, 8)
    for prompt in (tokens, list(tokens), tuple(int(token) for token in tokens)):
        assert capi.whisper_full(ctx, quick(prompt_tokens=prompt, prompt_n_tokens=n), SOUND, 16000) == 0
        texts.append([capi.whisper_full_get_segment_text(ctx, i) for i in range(capi.whisper_full_n_segments(ctx))])
    assert all(text == texts[0] for text in texts)


def test_whatever_is_wrong_is_a_typed_error(ctx: Any) -> None:
    for bad in (quick(n_threads=-5), quick(offset_ms=-(2**31)), quick(temperature=float("inf"))):
        with pytest.raises(WhispyxError):
            capi.whisper_full(ctx, bad, SOUND, 16000)


def test_token_times_of_silence_are_those_observed_in_whispercpp(model: Path) -> None:
    # Observed on 1.8.5: a segment 0 to 20 s of silence, words that weigh 5.01, 5.01, 3.01 and 5.01.
    data = model.read_bytes()
    words = {b"babada": b" hello", b"bada": b" the"}  # made-up words have no odd number of letters
    for old, new in words.items():
        size = struct.pack("<I", len(old))
        assert data.count(size + old) == 1
        data = data.replace(size + old, size + new)
    ctx = capi.whisper_init_from_buffer(data, len(data))
    assert ctx is not None
    texts = [capi.whisper_token_to_str(ctx, token) for token in range(EOT)]
    five, three = texts.index(b" hello"), texts.index(b" the")
    tokens = [BEG, five, five, three, five, BEG + 1000, BEG + 1000, EOT]
    silence = np.zeros(16000 * 21, np.float32)
    assert capi.whisper_full(ctx, scripted(tokens, token_timestamps=True), silence, len(silence)) == 0
    found = [capi.whisper_full_get_token_data(ctx, 0, i) for i in range(6)]
    assert [token.id for token in found] == tokens[:6]
    assert [round(token.vlen, 2) for token in found] == [7, 5.01, 5.01, 3.01, 5.01, 18]
    assert [token.t1 for token in found[1:5]] == [555, 1110, 1443, 2000]
    assert [token.t0 for token in found[1:5]] == [0, 555, 1110, 1443]
    assert [(token.t0, token.t1) for token in (found[0], found[5])] == [(0, 0), (2000, 2000)]
    capi.whisper_free(ctx)
