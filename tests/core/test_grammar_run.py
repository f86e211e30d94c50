"""Grammars and suppressed patterns in a whole recognition: what is said keeps to them, at any width of the search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core import suppress
from whispyx._core.context import Context
from whispyx._core.grammar import Grammar
from whispyx._core.params import FullParams
from whispyx._core.results import RunResult
from whispyx._core.run import full
from whispyx._core.state import State
from whispyx.errors import ParamsError

MODEL = TinyModel(n_vocab=51865, end_after=12)
SOUND = speechlike(2.0)
WAYS: list[dict[str, Any]] = [
    {},
    {"strategy": "beam_search", "beam_size": 4},
    {"temperature": 0.7, "best_of": 3},
]


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    context = pair(MODEL).context(True)
    yield context
    context.close()


def run(ctx: Context, **changes: Any) -> RunResult:
    with State(ctx) as state:
        return full(ctx, state, FullParams(**{"n_threads": 1, "temperature_inc": 0.0, **changes}), SOUND)


def text_of(result: RunResult) -> bytes:
    return b"".join(segment.text for segment in result.segments)


def test_the_model_says_something_else_by_itself(ctx: Context) -> None:
    assert not re.fullmatch(rb"( (ba|bu|di)+)+", text_of(run(ctx)))


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "beam", "best of 3"])
def test_B25_what_is_said_is_in_the_grammar(ctx: Context, way: dict[str, Any]) -> None:
    grammar = Grammar.from_gbnf('root ::= (" " ("ba" | "bu" | "di")+)+')
    said = text_of(run(ctx, grammar=grammar, no_timestamps=True, **way))
    assert re.fullmatch(rb"( (ba|bu|di)+)+", said)


def test_B25_a_sentence_that_is_begun_is_finished(ctx: Context) -> None:
    grammar = Grammar.from_gbnf('root ::= " ba" "bu" "di" "bu" "!"')
    assert text_of(run(ctx, grammar=grammar, no_timestamps=True)) == b" babudibu!"


def test_a_penalty_of_zero_changes_nothing(ctx: Context) -> None:
    grammar = Grammar.from_gbnf('root ::= "ba"')
    assert text_of(run(ctx, grammar=grammar, grammar_penalty=0.0)) == text_of(run(ctx))


def test_an_ambiguous_grammar_ends_with_an_error(ctx: Context) -> None:
    # Any byte is read in two ways, each of which owes something else.
    grammar = Grammar.from_gbnf('root ::= [^x] root "y" | [^x] root "z" | "x"')
    with pytest.raises(ParamsError, match="ambiguous"):
        run(ctx, grammar=grammar, no_timestamps=True)


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "beam", "best of 3"])
def test_B24_a_pattern_keeps_what_it_matches_away(ctx: Context, way: dict[str, Any]) -> None:
    def tokens(result: RunResult) -> list[bytes]:
        return [token.text for segment in result.segments for token in segment.tokens if token.id < ctx.vocab.eot]

    assert any(re.search(rb"[aeb]", token) for token in tokens(run(ctx, **way)))
    kept = tokens(run(ctx, suppress_regex="[aeb]", suppress_regex_search=True, **way))
    assert kept and not any(re.search(rb"[aeb]", token) for token in kept)
    whole = tokens(run(ctx, suppress_regex=" ?[a-z]{1,4}", **way))
    assert whole and not any(re.fullmatch(rb" ?[a-z]{1,4}", token) for token in whole)


@pytest.mark.parametrize("no_timestamps", [False, True])
def test_T16_nothing_but_times_and_the_end_is_left(ctx: Context, no_timestamps: bool) -> None:
    result = run(ctx, suppress_regex=".*", no_timestamps=no_timestamps)
    assert text_of(result) == b""


@pytest.mark.parametrize("pattern", ["[", "(", "a**", "(?P<n>a)"])
def test_T16_a_wrong_pattern_is_refused_before_anything_is_decoded(pattern: str) -> None:
    with pytest.raises(ParamsError):
        FullParams(suppress_regex=pattern)
    with pytest.raises(ValueError):
        FullParams(suppress_regex=pattern)


def test_T16_an_empty_pattern_changes_nothing(ctx: Context) -> None:
    assert text_of(run(ctx, suppress_regex="")) == text_of(run(ctx))


def test_B24_the_pattern_is_compared_once_per_run(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, asked = 0, 0

    class Pattern:
        def fullmatch(self, text: str) -> None:
            nonlocal asked
            asked += 1

    def compile_pattern(pattern: str, search: bool) -> tuple[None, Pattern]:
        nonlocal compiled
        compiled += 1
        return None, Pattern()

    monkeypatch.setattr(suppress, "compile_pattern", compile_pattern)
    result = run(ctx, suppress_regex="x", temperature=0.5, best_of=5)
    assert sum(len(segment.tokens) for segment in result.segments) > 3
    assert compiled == 1
    # Once for each token, and for those that go on with a character once per first bytes that were sampled.
    assert ctx.vocab.eot <= asked < 1.2 * ctx.vocab.eot
