"""Structs hold what C would hold, refuse what it could not, and begin with the defaults of the library itself."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whispyx import capi
from whispyx._core.params import usable_cores
from whispyx.capi._struct import Struct
from whispyx.errors import ParamsError

GREEDY, BEAM = capi.WHISPER_SAMPLING_GREEDY, capi.WHISPER_SAMPLING_BEAM_SEARCH


def same(ours: Any, theirs: Any) -> bool:
    """Equal, or the same value at the precision of a C float."""
    if isinstance(theirs, float):
        return bool(np.float32(ours) == np.float32(theirs))
    return bool(ours == theirs)


@pytest.mark.parametrize("strategy", [GREEDY, BEAM])
def test_full_params_begin_as_in_the_library(strategy: int, ask_whispercpp: Callable[..., Any]) -> None:
    theirs = ask_whispercpp("defaults")["full"][strategy]
    ours = capi.whisper_full_default_params(strategy)
    nested = {
        "best_of": ours.greedy.best_of,
        "beam_size": ours.beam_search.beam_size,
        "patience": ours.beam_search.patience,
    }
    compared = set()
    for name, value in theirs.items():
        if name in ("callbacks", "vad_params"):
            continue  # both below
        mine = nested[name] if name in nested else getattr(ours, name)
        if name == "n_threads":
            assert mine == min(4, usable_cores())  # the library looks at the machine, we at what we may use of it
        else:
            assert same(mine, value), name
        compared.add(name)
    assert theirs["callbacks"] == [None] * 10
    pointers = {name for name in ours.C_FIELDS if "callback" in name}
    assert len(pointers) == 10 and all(getattr(ours, name) is None for name in pointers)
    assert compared - set(nested) | pointers | {"greedy", "beam_search", "vad_params"} == set(ours.C_FIELDS)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("vad", capi.whisper_vad_default_params),
        ("vad_context", capi.whisper_vad_default_context_params),
    ],
)
def test_vad_params_begin_as_in_the_library(
    key: str, make: Callable[[], Any], ask_whispercpp: Callable[..., Any]
) -> None:
    ours = make()
    for name, value in ask_whispercpp("defaults")[key].items():
        assert same(getattr(ours, name), value), name


def test_context_params_begin_as_in_the_library(ask_whispercpp: Callable[..., Any]) -> None:
    ours, theirs = capi.whisper_context_default_params(), ask_whispercpp("defaults")["context"]
    assert (ours.dtw_aheads.n_heads, ours.dtw_aheads.heads) == (theirs.pop("n_heads"), theirs.pop("heads"))
    for name, value in theirs.items():
        assert same(getattr(ours, name), value), name


def test_params_by_reference_are_as_good_and_may_be_freed_twice() -> None:
    for strategy in (GREEDY, BEAM):
        params = capi.whisper_full_default_params_by_ref(strategy)
        assert params == capi.whisper_full_default_params(strategy)
        capi.whisper_free_params(params)
        capi.whisper_free_params(params)
    context_params = capi.whisper_context_default_params_by_ref()
    assert context_params == capi.whisper_context_default_params()
    capi.whisper_free_context_params(context_params)
    capi.whisper_free_context_params(context_params)
    capi.whisper_free_params(None)
    capi.whisper_free_context_params(None)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ParamsError, match="strategy is 2"):
        capi.whisper_full_default_params(2)
    with pytest.raises(ParamsError, match="strategy is -1"):
        capi.whisper_full_default_params(GREEDY).strategy = -1


def test_fields_take_what_c_would_convert() -> None:
    params = capi.whisper_full_default_params(GREEDY)
    params.n_threads = np.int64(3)
    params.translate = 1
    params.no_context = np.bool_(False)
    params.temperature = 1
    params.entropy_thold = np.float64(2.25)
    params.strategy = 1
    params.language = b"de"
    params.vad_model_path = Path("silero.bin")
    assert (params.n_threads, params.translate, params.no_context) == (3, True, False)
    assert type(params.n_threads) is int and type(params.translate) is bool and type(params.temperature) is float
    assert (params.temperature, params.entropy_thold, params.strategy) == (1.0, 2.25, BEAM)
    assert (params.language, params.vad_model_path) == (b"de", "silero.bin")
    params.temperature = 0.1
    assert params.temperature == float(np.float32(0.1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_threads", 1.5),
        ("n_threads", "4"),
        ("n_threads", None),
        ("translate", "yes"),
        ("translate", None),
        ("translate", 0.5),
        ("temperature", "0"),
        ("temperature", None),
        ("language", 5),
        ("new_segment_callback", 5),
        ("greedy", {"best_of": 3}),
        ("vad_params", None),
        ("strategy", 1.0),
        ("prompt_tokens", 5),
        ("prompt_tokens", "text"),
    ],
)
def test_another_type_is_refused_and_changes_nothing(name: str, value: object) -> None:
    params = capi.whisper_full_default_params(GREEDY)
    before = params.copy()
    with pytest.raises(TypeError, match=name):
        setattr(params, name, value)
    assert params == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_threads", 2**31),
        ("n_threads", -(2**31) - 1),
        ("n_grammar_rules", -1),
        ("n_grammar_rules", 2**64),
        ("temperature", 1e39),
        ("temperature", 10**400),
        ("language", "a\0b"),
        ("suppress_regex", b"a\0b"),
        ("strategy", 7),
    ],
)
def test_what_would_wrap_around_or_be_cut_is_refused(name: str, value: object) -> None:
    params = capi.whisper_full_default_params(GREEDY)
    with pytest.raises(ParamsError, match=name):
        setattr(params, name, value)


def test_floats_may_be_infinite_as_in_c() -> None:
    params = capi.whisper_full_default_params(GREEDY)
    params.entropy_thold = -math.inf
    assert params.entropy_thold == -math.inf


def test_a_wrong_name_is_an_error() -> None:
    params = capi.whisper_full_default_params(GREEDY)
    with pytest.raises(AttributeError):
        params.n_thread = 4
    with pytest.raises(TypeError, match="n_thread"):
        capi.whisper_full_params(n_thread=4)


def test_inner_structs_are_read_in_place_and_assigned_by_copy() -> None:
    params = capi.whisper_full_default_params(GREEDY)
    params.greedy.best_of = 3
    assert params.greedy.best_of == 3
    vad = capi.whisper_vad_default_params()
    vad.threshold = 0.75
    params.vad_params = vad
    vad.threshold = 0.25
    assert params.vad_params.threshold == 0.75
    copy = params.copy()
    copy.greedy.best_of = 1
    copy.vad_params.threshold = 0.5
    assert (params.greedy.best_of, params.vad_params.threshold) == (3, 0.75)


def test_strings_arrays_and_callables_stay_alive_with_the_struct() -> None:
    class Thing:
        def __call__(self, *_: object) -> None: ...

    params = capi.whisper_full_default_params(GREEDY)
    callback, data = Thing(), Thing()
    kept = weakref.ref(callback), weakref.ref(data)
    params.new_segment_callback, params.new_segment_callback_user_data = callback, data
    params.initial_prompt = "".join(["made ", "just now"])
    params.prompt_tokens = np.arange(5, dtype=np.int32)
    del callback, data
    gc.collect()
    assert all(reference() is not None for reference in kept)
    assert params.initial_prompt == "made just now" and list(params.prompt_tokens) == [0, 1, 2, 3, 4]
    del params
    gc.collect()
    assert all(reference() is None for reference in kept)


def test_every_struct_copies_compares_and_shows_itself() -> None:
    for name in capi.__all__:
        kind = getattr(capi, name)
        if isinstance(kind, type) and issubclass(kind, Struct):
            made = kind()
            assert made == made.copy() and made is not made.copy()
            assert repr(made).startswith(f"{name}(")
            with pytest.raises(TypeError):
                hash(made)
