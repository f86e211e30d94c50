"""Grammars: which tokens may follow, against an oracle that tries everything; limits; what whisper.cpp gets wrong."""

from __future__ import annotations

import string
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.small_vocab import EOT, N_VOCAB, vocab_of
from tests.oracle import grammar as oracle
from whispyx._core.grammar import Grammar, GrammarState
from whispyx.errors import ParamsError

ALPHABET = "abü€😀"
PIECES = [
    *(c.encode() for c in ALPHABET),
    b"\xc3",
    b"\xbc",
    b"\xe2",
    b"\x82",
    b"\xac",
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xff",
]

characters = st.sampled_from(ALPHABET).map(ord)
ranges = st.one_of(
    characters.map(lambda c: (c, c)),
    st.tuples(characters, characters).map(lambda pair: (min(pair), max(pair))),
)
classes = st.tuples(st.booleans(), st.lists(ranges, min_size=1, max_size=2).map(tuple))
# A call only leads to a later rule or, behind a character, anywhere: so no rule is left-recursive.
plain = st.tuples(st.just(False), characters.map(lambda c: ((c, c),)))


def rule(number: int, count: int) -> st.SearchStrategy[list[list[oracle.Item]]]:
    later = st.integers(number + 1, count - 1) if number + 1 < count else classes
    anywhere = st.one_of(st.integers(0, count - 1), classes)
    free = st.tuples(classes, st.lists(anywhere, max_size=2)).map(lambda parts: [parts[0], *parts[1]])
    bound = st.lists(st.one_of(later, classes, plain), max_size=2)
    return st.lists(st.one_of(free, bound), min_size=1, max_size=3)


rule_sets = st.integers(1, 4).flatmap(lambda n: st.tuples(*[rule(i, n) for i in range(n)]).map(list))
words = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map(b"".join), min_size=1, max_size=12)


def accept_all(state: GrammarState, tokens: Sequence[int]) -> GrammarState:
    for token in tokens:
        state.accept(token)
    return state


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(rules=rule_sets, words=words, picks=st.lists(st.integers(0, 11), max_size=5))
def test_rejected_tokens_are_those_that_cannot_follow(
    rules: oracle.Rules, words: list[bytes], picks: list[int]
) -> None:
    state = Grammar.from_rules(oracle.elements(rules)).start(vocab_of(words))
    before = b""
    for step in range(len(picks) + 1):
        ok = oracle.split(before)
        assert ok is not None
        ended = not ok[1] and oracle.completes(rules, ok[0])
        assert state.ended == ended
        rejected = {i for i, word in enumerate(words) if not oracle.may_follow(rules, before, word)}
        if step and not ended:
            rejected.add(EOT)
        assert set(state.rejected()) == rejected, (rules, words, before)
        if step == len(picks):
            break
        pick = picks[step] % len(words)
        state.accept(pick)
        if pick in rejected:
            assert state.unmatched
            assert set(state.rejected()) == set(range(len(words)))
            break
        assert not state.unmatched
        before += words[pick]


def test_the_penalty_is_subtracted_and_nothing_else_changes() -> None:
    vocab = vocab_of([b"a", b"b", b"ab"])
    row = np.arange(N_VOCAB, dtype=np.float32)
    row[1] = -np.inf
    Grammar.from_gbnf('root ::= "a"').start(vocab).penalise_row(row, 7.5)
    expected = np.arange(N_VOCAB, dtype=np.float32)
    expected[1] = -np.inf
    expected[2] -= 7.5
    np.testing.assert_array_equal(row, expected)


def test_special_tokens_change_nothing() -> None:
    state = Grammar.from_gbnf('root ::= "ab"').start(vocab_of([b"a", b"b"]))
    state.accept(0)
    before = state.rejected()
    for token in (EOT, EOT + 1, EOT + 106):
        state.accept(token)
    assert state.rejected() == before == [0, EOT]


def test_a_timestamp_closes_a_text_but_the_grammar_goes_on() -> None:
    state = Grammar.from_gbnf('root ::= "abc"').start(vocab_of([b"a", b"b"]))
    state.accept(0)
    for token in (EOT + 107, EOT + 200, N_VOCAB - 1):
        state.accept(token)
        assert state.rejected() == [0]  # the model may end here, or say "b"
    state.accept(1)
    assert state.rejected() == [0, 1, EOT]


def test_a_copy_goes_its_own_way() -> None:
    first = Grammar.from_gbnf('root ::= "a" ("b" | "c")').start(vocab_of([b"a", b"b", b"c"]))
    first.accept(0)
    second = first.copy()
    second.accept(1)
    assert second.ended and not first.ended
    assert first.rejected() == [0, EOT]
    again = second.restart()
    assert not again.ended and not again.started and again.rejected() == [1, 2]


def test_characters_split_over_tokens_are_followed() -> None:
    words = ["ü".encode(), b"\xc3", b"\xbc", b"\xa4", "ä".encode(), b"\xe2"]
    state = Grammar.from_gbnf('root ::= "ü"').start(vocab_of(words))
    assert state.rejected() == [2, 3, 4, 5]
    state.accept(1)
    assert not state.ended
    assert state.rejected() == [0, 1, 3, 4, 5, EOT]
    state.accept(2)
    assert state.ended


def test_a_begun_character_may_become_any_but_the_excluded_one() -> None:
    # whisper.cpp rejects every beginning that the excluded character shares.
    state = Grammar.from_gbnf("root ::= [^é]").start(vocab_of([b"\xc3", b"\xa9", b"\xa8"]))
    assert 0 not in state.rejected()
    state.accept(0)
    assert state.rejected() == [0, 1, EOT]


def test_B25_left_recursion_is_refused() -> None:
    for text in (
        'root ::= root "a" | "b"',
        "root ::= root",
        'root ::= x\nx ::= y "a"\ny ::= x | "b"',
        'root ::= "a"? root "b" | "c"',
        'root ::= ("a"? "b"*) ("c"? root "d")? | "e"',
    ):
        with pytest.raises(ParamsError, match="left-recursive"):
            Grammar.from_gbnf(text)
    deep = [[(oracle.RULE_REF, i + 1), (oracle.CHAR, 97), (oracle.END, 0)] for i in range(50_000)]
    with pytest.raises(ParamsError, match="left-recursive"):
        Grammar.from_rules([*deep, [(oracle.RULE_REF, 0), (oracle.END, 0)]])


def test_B25_deep_rules_do_not_overflow_the_stack() -> None:
    n = 50_000
    rules = [[(oracle.RULE_REF, i + 1), (oracle.CHAR, 98), (oracle.END, 0)] for i in range(n)]
    state = Grammar.from_rules([*rules, [(oracle.CHAR, 97), (oracle.END, 0)]]).start(vocab_of([b"a", b"b"]))
    assert state.rejected() == [1]
    accept_all(state, [0, *[1] * (n - 1)])
    assert not state.ended
    state.accept(1)
    assert state.ended


def test_B25_repeating_what_may_be_empty_ends() -> None:
    vocab = vocab_of([b"a", b"b", b"c"])
    for text in ('root ::= ("a"?)* "b"', 'root ::= (("a"*)* "")+ "b"', 'root ::= ("" | "a")* "b"'):
        state = accept_all(Grammar.from_gbnf(text).start(vocab), [0, 0])
        assert state.rejected() == [2, EOT]
        assert accept_all(state, [1]).ended


def test_B25_a_text_that_left_the_grammar_does_not_go_on_without_it() -> None:
    vocab = vocab_of([b"a", b"b", b"c"])
    state = Grammar.from_gbnf('root ::= "a" "b"* "c"').start(vocab)
    accept_all(state, [0, 2, 1])
    assert state.unmatched and not state.ended
    # Every text token is rejected from now on, so that the text ends; its end is not.
    assert state.rejected() == [0, 1, 2]


def test_B25_a_text_that_is_begun_may_only_end_whole() -> None:
    state = Grammar.from_gbnf('root ::= "a" "b"').start(vocab_of([b"a", b"b"]))
    assert EOT not in state.rejected()  # nothing said: a silent window may stay empty
    state.accept(0)
    assert EOT in state.rejected()
    state.accept(1)
    assert state.ended and state.rejected() == [0, 1]


def test_B25_rules_are_copied() -> None:
    rules = [[(oracle.CHAR, 97), (oracle.END, 0)]]
    grammar = Grammar.from_rules(rules)
    rules[0][0] = (oracle.CHAR, 98)
    rules.clear()
    assert grammar.start(vocab_of([b"a", b"b"])).rejected() == [1]


@pytest.mark.parametrize(
    ("rules", "start", "message"),
    [
        ([], 0, "no start rule"),
        ([[(0, 0)]], 1, "no start rule 1"),
        ([[(0, 0)]], -1, "no start rule"),
        ([[]], 0, "does not end with an END"),
        ([[(3, 97)]], 0, "does not end with an END"),
        ([[(0, 0), (0, 0)]], 0, "after the END"),
        ([[(2, 1), (0, 0)]], 0, "no rule 1"),
        ([[(2, -1), (0, 0)]], 0, "no rule -1"),
        ([[(7, 1), (0, 0)]], 0, "no element type"),
        ([[(6, 97), (0, 0)]], 0, "none was begun"),
        ([[(5, 97), (0, 0)]], 0, "none was begun"),
        ([[(3, 97), (5, 98), (5, 99), (0, 0)]], 0, "two ends"),
        ([[(3, 97), (5, 96), (0, 0)]], 0, "ends before it begins"),
        ([[(3, 0x110000), (0, 0)]], 0, "no Unicode character"),
        ([[(3, -1), (0, 0)]], 0, "no Unicode character"),
        ([[("a", 1), (0, 0)]], 0, "pairs of integers"),
        ([[3, 0]], 0, "pairs of integers"),
        ([None], 0, "lists of"),
        (5, 0, "lists of"),
    ],
)
def test_B25_wrong_elements_are_refused(rules: object, start: int, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        Grammar.from_rules(rules, start)  # type: ignore[arg-type]


def test_growth_has_a_limit() -> None:
    # Each "a" doubles the ways to read the text: the "b" or "c" that each owes.
    grammar = Grammar.from_gbnf('root ::= "a" root "b" | "a" root "c" | "d"')
    state = grammar.start(vocab_of([b"a", b"aaaa", b"d"]))
    with pytest.raises(ParamsError, match="too ambiguous"):
        accept_all(state, [1] * 50)
    assert state.copy().restart().rejected() == []  # the caches are whole


def test_a_vocabulary_is_penalised_without_walking_it_twice() -> None:
    words = [f"{a}{b}{c}".encode() for a in string.ascii_letters for b in string.ascii_letters for c in "xyz"]
    state = Grammar.from_gbnf("root ::= [^x]*").start(vocab_of(words))
    expected = [i for i, word in enumerate(words) if b"x" in word]
    for _ in range(3):
        assert state.rejected() == expected
        state.accept(words.index(b"aby"))
    assert accept_all(state, [words.index(b"abx")]).unmatched


def test_threads_share_a_grammar() -> None:
    vocab = vocab_of([b"a", b"b", b"c"])
    grammar = Grammar.from_gbnf('root ::= ("a" "b")* "c"')
    wrong = []

    def work() -> None:
        for _ in range(50):
            state = grammar.start(vocab)
            for _ in range(20):
                if state.rejected() != ([1] if not state.started else [1, EOT]):
                    wrong.append("before a")
                state.accept(0)
                if state.rejected() != [0, 2, EOT]:
                    wrong.append("before b")
                state.accept(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_objects_that_were_never_made_refuse_to_work() -> None:
    with pytest.raises(TypeError):
        Grammar()
    with pytest.raises(TypeError):
        GrammarState()
    unmade = GrammarState.__new__(GrammarState)
    for call in (unmade.rejected, unmade.restart, lambda: unmade.accept(0), lambda: unmade.copy().ended):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        Grammar.__new__(Grammar).start(vocab_of([b"a"]))
    with pytest.raises(TypeError):
        Grammar.from_gbnf('root ::= "a"').start(None)  # type: ignore[arg-type]
    with pytest.raises(ParamsError):
        Grammar.from_gbnf('root ::= "a"').start(vocab_of([b"a"])).penalise_row(np.zeros(5, np.float32), 1.0)
    with pytest.raises(ParamsError):
        Grammar.from_gbnf('root ::= "a"').start(vocab_of([b"a"])).accept(N_VOCAB)
