"""T16: patterns of tokens that must not be written. (whisper.cpp #3355, #3356)"""

from __future__ import annotations

import re
from typing import Any

from tests.trials import child
from tests.trials.bench import bench, files, text_of
from whispyx.errors import ParamsError

BAD = ("[", "(", "*")
UMLAUTS = "ü|ö|ä|Ü|Ö|Ä"
LATVIAN = "ķ|ļ|ņ|ģ|š|ī|ā|ū|ē"  # letters that base spreads over two tokens in places


def refusals() -> list[Any]:
    found = []
    with bench("base") as b:
        for pattern in BAD:
            began: list[int] = []

            def begin(began: list[int] = began) -> bool:
                began.append(1)
                return True

            error = b.refused(ParamsError, "numbers", suppress_regex=pattern, encoder_begin_callback=begin)
            found.append([pattern, str(error), isinstance(error, ValueError), len(began)])
    return found


def test_a_bad_pattern_is_refused_before_anything_is_decoded() -> None:
    files("base")
    for pattern, message, is_value_error, n_begun in child.run(refusals):
        assert is_value_error and n_begun == 0 and "suppress_regex" in message, (pattern, message)


def texts(clip: str, language: str, jobs: list[dict[str, Any]]) -> list[Any]:
    rows = []
    with bench("base") as b:
        for params in jobs:
            result = b.run(clip, language=language, temperature_inc=0.0, **params)
            tokens = [token.id for segment in result.segments for token in segment.tokens]
            timestamps = sum(token > b.ctx.vocab.beg for token in tokens)
            pieces = [token.text.decode("utf-8", "replace") for s in result.segments for token in s.tokens]
            rows.append([text_of(result), timestamps, result.timings.n_decode, pieces])
    return rows


def search(pattern: str) -> dict[str, Any]:
    return {"suppress_regex": pattern, "suppress_regex_search": True}


def test_a_pattern_of_digits_removes_digits_and_nothing_else() -> None:
    files("base")
    jobs = [{}, {"suppress_regex": ""}, search(r"\d"), {"suppress_regex": r" ?[0-9]+"}]
    plain, empty, *without = child.run(texts, "numbers", "en", jobs)
    assert re.search(r"\d", plain[0]) and empty == plain
    for text, timestamps, *_ in without:
        assert not re.search(r"\d", text) and len(re.findall(r"[a-z]{3,}", text)) >= 4, text
        assert timestamps >= 1  # the segment is closed by the model


def test_a_pattern_is_matched_with_whole_tokens_unless_a_search_is_asked_for() -> None:
    files("base")
    plain, whole, searched = child.run(texts, "numbers", "en", [{}, {"suppress_regex": "ffi"}, search("ffi")])
    assert whole == plain and any("ffi" in piece for piece in plain[3]), plain
    assert searched[0].strip() and not any("ffi" in piece for piece in searched[3])


def test_a_pattern_of_letters_removes_them_where_they_span_two_tokens_too() -> None:
    files("base")
    for clip, language, pattern in (("umlauts", "de", UMLAUTS), ("latvian", "lv", LATVIAN)):
        plain, without = child.run(texts, clip, language, [{}, search(pattern)])
        assert re.search(pattern, plain[0]), f"calibration: {plain[0]!r}"
        assert without[0].strip() and not re.search(pattern, without[0]), without[0]


def test_a_pattern_of_everything_gives_no_text_and_ends() -> None:
    files("base")
    for text, _, n_decode, _ in child.run(texts, "numbers", "en", [{"suppress_regex": ".*"}, search(".")]):
        assert text == "" and n_decode < 224
