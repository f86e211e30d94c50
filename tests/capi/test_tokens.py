"""Tokens, languages and model facts: the same numbers as whisper.cpp on the same file."""

from __future__ import annotations

import array
import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capi.conftest import SOUND
from whispyx import capi
from whispyx.errors import ParamsError

N_LEN = {1: 0, 1600: 9, 3000: 18, 16000: 99, 176000: 1099}  # observed on a CPU build of 1.8.5


@pytest.mark.parametrize("fixture", ["ctx", "english"])
def test_numbers_and_texts_are_those_of_whispercpp(
    fixture: str, request: pytest.FixtureRequest, ask_whispercpp: Callable[..., Any]
) -> None:
    ctx = request.getfixturevalue(fixture)
    path = request.getfixturevalue("model" if fixture == "ctx" else "english_model")
    theirs = ask_whispercpp("facts", model=str(path))
    for name, value in theirs["numbers"].items():
        assert getattr(capi, f"whisper_{name}")(ctx) == value, name
    assert capi.whisper_model_type_readable(ctx) == theirs["type"]
    assert [capi.whisper_token_lang(ctx, i) for i in range(99)] == theirs["languages"]
    ours = [capi.whisper_token_to_str(ctx, i) for i in range(capi.whisper_n_vocab(ctx))]
    # A text with a zero byte ends there in C.
    assert [text.split(b"\0")[0].hex() for text in ours] == theirs["tokens"]


def test_special_tokens_have_the_published_ids(ctx: Any, english: Any) -> None:
    names = ("eot", "sot", "translate", "transcribe", "solm", "prev", "nosp", "not", "beg")
    assert [getattr(capi, f"whisper_token_{name}")(ctx) for name in names] == [
        50257, 50258, 50358, 50359, 50360, 50361, 50362, 50363, 50364
    ]  # fmt: skip
    assert [getattr(capi, f"whisper_token_{name}")(english) for name in names] == [
        50256, 50257, 50357, 50358, 50359, 50360, 50361, 50362, 50363
    ]  # fmt: skip


def test_languages_are_those_of_whispercpp(ask_whispercpp: Callable[..., Any]) -> None:
    theirs = ask_whispercpp("languages")
    n = capi.whisper_lang_max_id() + 1
    assert [capi.whisper_lang_str(i) for i in range(n)] == theirs["codes"]
    assert [capi.whisper_lang_str_full(i) for i in range(n)] == theirs["names"]
    assert {text: capi.whisper_lang_id(text) for text in theirs["ids"]} == theirs["ids"]
    assert theirs["none"] and capi.whisper_lang_str(n) is None and capi.whisper_lang_str_full(-1) is None


def test_unknown_languages_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        assert capi.whisper_lang_id(b"klingon") == -1
    assert "klingon" in caplog.text


def test_m12_a_null_language_is_an_error_and_no_crash() -> None:
    with pytest.raises(ParamsError, match="NULL"):
        capi.whisper_lang_id(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        capi.whisper_lang_id(5)  # type: ignore[arg-type]


def test_m11_an_unknown_token_is_an_error_and_no_crash(ctx: Any) -> None:
    for token in (-1, capi.whisper_n_vocab(ctx), 2**31 - 1):
        with pytest.raises(ParamsError, match=str(token)):
            capi.whisper_token_to_str(ctx, token)
    with pytest.raises(ParamsError):
        capi.whisper_token_lang(ctx, 99)  # this model has 99 languages, 0 to 98
    with pytest.raises(ParamsError):
        capi.whisper_token_lang(ctx, -1)


@pytest.mark.parametrize(
    "room",
    [
        lambda n: np.zeros(n, np.int32),
        lambda n: array.array("i", [0] * n),
        lambda n: (ctypes.c_int32 * n)(),
        lambda n: memoryview(bytearray(4 * n)).cast("i"),
        lambda n: [0] * n,
    ],
    ids=["numpy", "array", "ctypes", "memoryview", "list"],
)
def test_tokenize_writes_into_every_kind_of_array(ctx: Any, room: Callable[[int], Any]) -> None:
    tokens = room(16)
    n = capi.whisper_tokenize(ctx, " Hello world", tokens, 16)
    assert n > 0
    assert b"".join(capi.whisper_token_to_str(ctx, tokens[i]) for i in range(n)) == b" Hello world"
    assert all(tokens[i] == 0 for i in range(n, 16))


def test_tokenize_says_how_much_room_is_needed_and_writes_nothing(ctx: Any) -> None:
    tokens = np.full(16, -7, np.int32)
    n = capi.whisper_token_count(ctx, " Hello world, hello!")
    assert n > 1
    assert capi.whisper_tokenize(ctx, " Hello world, hello!", tokens, n - 1) == -n
    assert capi.whisper_tokenize(ctx, b" Hello world, hello!", None, 0) == -n
    assert (tokens == -7).all()
    assert capi.whisper_tokenize(ctx, " Hello world, hello!", tokens, n) == n
    assert capi.whisper_tokenize(ctx, "", None, 0) == 0


def test_b23_any_text_comes_back_whole_from_its_tokens(ctx: Any) -> None:
    for text in ("Grüße, 世界! Привет…  two  spaces\n", "日本語"):
        tokens = np.zeros(256, np.int32)
        n = capi.whisper_tokenize(ctx, text, tokens, 256)
        assert b"".join(capi.whisper_token_to_str(ctx, t) for t in tokens[:n]) == text.encode()


def test_tokenize_refuses_what_it_cannot_write_to(ctx: Any) -> None:
    frozen = np.zeros(16, np.int32)
    frozen.flags.writeable = False
    for bad in (frozen, np.zeros(16, np.int64), np.zeros(16, np.float32), 5, (0,) * 16):
        with pytest.raises(TypeError, match="tokens"):
            capi.whisper_tokenize(ctx, " Hello", bad, 16)
    for short in (np.zeros(0, np.int32), [], None):
        with pytest.raises(ParamsError, match="tokens"):
            capi.whisper_tokenize(ctx, " Hello", short, 16)
    with pytest.raises(ParamsError, match="n_max_tokens"):
        capi.whisper_tokenize(ctx, " Hello", [0], -1)
    with pytest.raises(ParamsError, match="UTF-8"):
        capi.whisper_tokenize(ctx, b"\xff", [0], 1)


def test_m13_token_count_is_there(ctx: Any) -> None:
    assert capi.whisper_token_count(ctx, "") == 0
    assert capi.whisper_token_count(ctx, " the") >= 1


def test_n_len_counts_frames_as_observed(ctx: Any) -> None:
    assert capi.whisper_n_len(ctx) == 0
    for n, frames in N_LEN.items():
        assert capi.whisper_pcm_to_mel(ctx, np.zeros(n, np.float32), n, 1) == 0
        assert capi.whisper_n_len(ctx) == frames


def test_n_len_is_that_of_whispercpp(ctx: Any, model: Path, ask_whispercpp: Callable[..., Any]) -> None:
    lengths = [1, 40, 41, 199, 200, 201, 359, 360, 361, 1599, 1600, 16001, 480000]
    ours = []
    for n in lengths:
        assert capi.whisper_pcm_to_mel(ctx, np.zeros(n, np.float32), n, 1) == 0
        ours.append(capi.whisper_n_len_from_state(ctx.state))
    assert ours == ask_whispercpp("lengths", model=str(model), samples=lengths)


def test_language_detection_has_the_codes_of_c(ctx: Any) -> None:
    assert capi.whisper_lang_auto_detect(ctx, 0, 1) == -2  # no audio at all
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    assert capi.whisper_lang_auto_detect(ctx, -10, 1) == -1
    assert capi.whisper_lang_auto_detect(ctx, 4000, 1) == -2
    probabilities = np.full(100, 9.0, np.float32)
    found = capi.whisper_lang_auto_detect(ctx, 0, 1, probabilities)
    assert 0 <= found <= 98 and found == probabilities.argmax()
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-5)
    assert probabilities[99] == 0.0  # the model has 99 languages


def test_language_detection_is_a_softmax_over_the_language_tokens(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    probabilities = np.zeros(100, np.float32)
    found = capi.whisper_lang_auto_detect(ctx, 1000, 1, probabilities)
    assert capi.whisper_encode(ctx, 100, 1) == 0
    assert capi.whisper_decode(ctx, [capi.whisper_token_sot(ctx)], 1, 0, 1) == 0
    first = capi.whisper_token_lang(ctx, 0)
    scores = capi.whisper_get_logits(ctx)[-1, first : first + 99].astype(np.float64)
    expected = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(probabilities[:99], expected, atol=1e-5)
    assert found == expected.argmax()


def test_b14_an_english_only_model_has_nothing_to_detect(english: Any) -> None:
    assert capi.whisper_pcm_to_mel(english, SOUND, len(SOUND), 1) == 0
    probabilities = np.zeros(100, np.float32)
    assert capi.whisper_lang_auto_detect(english, 0, 1, probabilities) == 0
    assert probabilities[0] == 1.0 and probabilities.sum() == 1.0


def test_language_probabilities_need_room_for_all(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    with pytest.raises(ParamsError, match="lang_probs"):
        capi.whisper_lang_auto_detect(ctx, 0, 1, np.zeros(99, np.float32))
    with pytest.raises(TypeError, match="lang_probs"):
        capi.whisper_lang_auto_detect(ctx, 0, 1, np.zeros(100, np.float64))
