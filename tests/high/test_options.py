from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from whispyx import LanguageError, ParamsError, TranscribeOptions
from whispyx.options import OptionFields


def test_defaults_are_those_of_whisper_full_default_params_greedy() -> None:
    # fact: whisper.h 1.8.5, whisper_full_default_params(WHISPER_SAMPLING_GREEDY)
    options = TranscribeOptions()
    assert (options.temperature, options.temperature_inc, options.best_of) == (0.0, 0.2, 5)
    assert (options.entropy_thold, options.logprob_thold, options.no_speech_thold) == (2.4, -1.0, 0.6)
    assert options.suppress_blank and not options.suppress_nst
    assert options.max_initial_ts == 1.0
    assert options.language is None and options.task == "transcribe"


def test_languages_are_taken_by_code_or_english_name_in_any_case() -> None:
    assert TranscribeOptions(language="DE").language == "de"
    assert TranscribeOptions(language="German").language == "de"
    assert TranscribeOptions(language=" haitian creole ").language == "ht"


@pytest.mark.parametrize("word", [None, "auto", "AUTO", ""])
def test_no_language_means_detect_it(word: str | None) -> None:
    assert TranscribeOptions(language=word).language is None


def test_an_unknown_language_is_refused_by_name() -> None:
    with pytest.raises(LanguageError, match="klingon"):
        TranscribeOptions(language="klingon")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("temperature", 10.5),
        ("temperature", "0"),
        ("temperature", None),
        ("temperature", 10**400),
        ("temperature_inc", -1),
        ("temperature_inc", 1e-9),
        ("best_of", 0),
        ("best_of", 9),
        ("best_of", 2.5),
        ("best_of", True),
        ("beam_size", 0),
        ("beam_size", 9),
        ("patience", 0.05),
        ("patience", 2.0),
        ("suppress_regex", b"[0-9]"),
        ("seed", -1),
        ("seed", 2**32),
        ("no_speech_thold", 1.5),
        ("max_tokens", 0),
        ("n_threads", 0),
        ("n_threads", -1),
        ("n_threads", 10**6),
        ("offset", -1),
        ("duration", 0),
        ("duration", math.nan),
        ("audio_ctx", -1),
        ("timestamps", 1),
        ("initial_prompt", b"bytes"),
        ("task", "summarise"),
        ("language", 5),
    ],
)
def test_a_bad_value_is_refused_and_the_message_names_the_field_and_the_value(field: str, value: object) -> None:
    with pytest.raises(ParamsError) as caught:
        TranscribeOptions(**{field: value})  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    assert field in str(caught.value)
    assert (f"{value:g}" if value == 0 else repr(value)) in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    options = TranscribeOptions(temperature=np.float32(0.5), best_of=np.int64(3))  # type: ignore[arg-type]
    assert type(options.temperature) is float and options.temperature == 0.5
    assert type(options.best_of) is int and options.best_of == 3


def test_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TranscribeOptions().temperature = 1.0  # type: ignore[misc]


def test_an_unknown_keyword_is_a_type_error_that_offers_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="'temprature'; did you mean 'temperature'"):
        TranscribeOptions.from_keywords(None, {"temprature": 0.1})


def test_the_typed_keywords_are_the_fields_of_the_options() -> None:
    assert set(OptionFields.__annotations__) == {option.name for option in fields(TranscribeOptions)} - {"language"}
    for option in fields(TranscribeOptions):
        if option.name != "language":
            typed = OptionFields.__annotations__[option.name]
            assert getattr(typed, "__forward_arg__", typed) == option.type


def test_every_option_is_documented() -> None:
    text = TranscribeOptions.__doc__ or ""
    for option in fields(TranscribeOptions):
        assert f"    {option.name} : " in text, option.name
