"""Grammars as arrays of elements, as in C, or made from text."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.capi.conftest import SOUND, quick
from whispyx import capi
from whispyx.errors import ParamsError

END, ALT, REF, CHAR = (
    capi.WHISPER_GRETYPE_END,
    capi.WHISPER_GRETYPE_ALT,
    capi.WHISPER_GRETYPE_RULE_REF,
    capi.WHISPER_GRETYPE_CHAR,
)


def rule(*elements: tuple[int, int]) -> list[Any]:
    return [capi.whisper_grammar_element(type=kind, value=value) for kind, value in (*elements, (END, 0))]


YES_OR_NO = [
    rule((REF, 1), (ALT, 0), (REF, 2)),
    rule((CHAR, ord(" ")), (CHAR, ord("y")), (CHAR, ord("e")), (CHAR, ord("s"))),
    rule((CHAR, ord(" ")), (CHAR, ord("n")), (CHAR, ord("o"))),
]


def wordy(ctx: Any, state: Any, tokens: Any, n: int, logits: Any, data: Any) -> None:
    """Three tokens of text, unless the grammar takes more off them than this; then the end."""
    logits[50257:] -= 50.0
    if n >= 3:
        logits[50257] += 1000.0


def texts(ctx: Any, params: Any) -> list[bytes]:
    params.logits_filter_callback, params.single_segment = wordy, True
    assert capi.whisper_full(ctx, params, SOUND, len(SOUND)) == 0
    n = capi.whisper_full_n_segments(ctx)
    return [capi.whisper_full_get_segment_text(ctx, i) for i in range(n)]


def test_only_what_the_grammar_allows_is_written(ctx: Any) -> None:
    free = texts(ctx, quick())
    assert free and not set(free) <= {b" yes", b" no"}
    params = quick(grammar_rules=YES_OR_NO, n_grammar_rules=3, i_start_rule=0)
    bound = texts(ctx, params)
    assert bound and set(bound) <= {b" yes", b" no"}
    assert texts(ctx, quick()) == free


def test_the_start_rule_can_be_any(ctx: Any) -> None:
    params = quick(grammar_rules=YES_OR_NO, n_grammar_rules=3, i_start_rule=2)
    assert set(texts(ctx, params)) == {b" no"}


def test_text_makes_the_same_grammar_as_elements(ctx: Any) -> None:
    from_text = capi.Grammar.from_gbnf('root ::= yes | no\nyes ::= " yes"\nno ::= " no"')
    elements = texts(ctx, quick(grammar_rules=YES_OR_NO, n_grammar_rules=3))
    params = quick()
    params.grammar_rules = from_text
    assert texts(ctx, params) == elements


def test_without_a_penalty_or_rules_a_grammar_has_no_effect(ctx: Any) -> None:
    free = texts(ctx, quick())
    assert texts(ctx, quick(grammar_rules=YES_OR_NO, n_grammar_rules=3, grammar_penalty=0.0)) == free
    assert texts(ctx, quick(grammar_rules=YES_OR_NO, n_grammar_rules=0)) == free


def test_rules_stay_alive_with_the_params(ctx: Any) -> None:
    params = quick(n_grammar_rules=3)
    params.grammar_rules = [[element.copy() for element in rule] for rule in YES_OR_NO]
    gc.collect()
    assert texts(ctx, params) == texts(ctx, quick(grammar_rules=YES_OR_NO, n_grammar_rules=3))


@pytest.mark.parametrize(
    "rules",
    [
        [rule((REF, 0))],
        [rule((REF, 1)), rule((REF, 0), (CHAR, 97))],
        [rule((REF, 7))],
        [rule((CHAR, 97))[:-1]],
        [rule((CHAR, 0x110000))],
        [rule((capi.WHISPER_GRETYPE_CHAR_RNG_UPPER, 97))],
    ],
    ids=["itself", "left recursion", "no such rule", "no end", "no character", "upper bound alone"],
)
def test_b25_rules_that_make_no_grammar_are_refused(ctx: Any, rules: list[list[Any]]) -> None:
    with pytest.raises(ParamsError):
        capi.whisper_full(ctx, quick(grammar_rules=rules, n_grammar_rules=len(rules)), SOUND, len(SOUND))
    assert capi.whisper_full(ctx, quick(), SOUND, len(SOUND)) == 0


def test_elements_of_another_type_are_refused(ctx: Any) -> None:
    with pytest.raises(TypeError, match="whisper_grammar_element"):
        capi.whisper_full(ctx, quick(grammar_rules=[[(3, 97), (0, 0)]], n_grammar_rules=1), SOUND, len(SOUND))
