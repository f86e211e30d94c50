"""GBNF: text to rules, what may be written, and where the messages point when it may not."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.small_vocab import EOT, vocab_of
from whispyx._core.gbnf import (
    ALT,
    CHAR,
    CHAR_ALT,
    CHAR_NOT,
    CHAR_RNG_UPPER,
    END,
    MAX_REPEAT,
    RULE_REF,
    parse,
)
from whispyx._core.grammar import Grammar
from whispyx.errors import ParamsError

CHARACTERS = string.ascii_letters + string.digits + ' .,"\\[]-^\n\tüß€😀'
VOCAB = vocab_of([c.encode() for c in CHARACTERS])


def matches(text: str, sample: str, root: str = "root") -> bool:
    """Whether a grammar takes a sample as a whole."""
    state = Grammar.from_gbnf(text, root).start(VOCAB)
    for c in sample:
        token = VOCAB.token_id(c.encode())
        assert token is not None
        rejected = state.rejected()
        state.accept(token)
        assert state.unmatched == (token in rejected)
        if state.unmatched:
            return False
    return state.ended


def test_the_rules_are_those_of_whisper_h() -> None:
    rules, symbols = parse('root ::= "ab" other | [a-c_x-z] # a comment\nother ::= [^"\\n]\n')
    assert symbols == {"root": 0, "other": 1}
    root = [(CHAR, 97), (CHAR, 98), (RULE_REF, 1), (ALT, 0), (CHAR, 97), (CHAR_RNG_UPPER, 99), (CHAR_ALT, 95),
            (CHAR_ALT, 120), (CHAR_RNG_UPPER, 122), (END, 0)]  # fmt: skip
    assert rules == [root, [(CHAR_NOT, 34), (CHAR_ALT, 10), (END, 0)]]


def test_repetition_becomes_rules_as_in_the_example_parser() -> None:
    rules, symbols = parse('root ::= "a"* "b"+ "c"?')
    star, plus, maybe = (symbols[name] for name in list(symbols)[1:])
    assert rules[0] == [(RULE_REF, star), (RULE_REF, plus), (RULE_REF, maybe), (END, 0)]
    assert rules[star] == [(CHAR, 97), (RULE_REF, star), (ALT, 0), (END, 0)]
    assert rules[plus] == [(CHAR, 98), (RULE_REF, plus), (ALT, 0), (CHAR, 98), (END, 0)]
    assert rules[maybe] == [(CHAR, 99), (ALT, 0), (END, 0)]


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "ye", "yesno"]),
        ("root ::= [0-9]+", ["0", "42"], ["", "a", "4a"]),
        ("root ::= [^0-9]", ["a", "ü", "😀"], ["", "0"]),
        ("root ::= .", ["a", "😀", "\n"], ["", "ab"]),
        ('root ::= "a" ("b" | "c")* "d"?', ["a", "abcb", "abd", "ad"], ["b", "add"]),
        ('root ::= "ab"{2}', ["abab"], ["ab", "abb", "ababab"]),
        ('root ::= "ab"{2,}', ["abab", "ababab"], ["ab", "aba"]),
        ('root ::= [a-c]{1,3} "x"', ["ax", "abcx"], ["x", "abcax"]),
        ('root ::= "a"{0} "b"', ["b"], ["ab"]),
        ('root ::= "a"{0,2}', ["", "a", "aa"], ["aaa"]),
        ('root ::= "a" { 1 , 2 }', ["a", "aa"], ["aaa", ""]),
        ('root ::= ("a" | "b"){2}', ["ab", "ba", "bb"], ["a", "abc"]),
        ('root ::= ("a"+)+ "b"', ["ab", "aaab"], ["b"]),
        ('root ::= ""', [""], ["a"]),
        ("root ::=", [""], ["a"]),
        ('root ::= "a" |', ["", "a"], ["aa"]),
        (r'root ::= "\"\\\n\t\x41\u00fc\U0001F600"', ['"\\\n\tAü😀'], []),
        (r"root ::= [\[\]\-\^a]+", ["[]-^a"], ["b"]),
        ("root ::= [a-]+ [-a] [^-]", ["a-ab", "---a"], ["--"]),
        ('root ::= x-1 y_2\nx-1 ::= "a"\ny_2 ::= "b"', ["ab"], ["a"]),
        ('root ::= (\n  "a"   # one\n  | "b" # two\n)\n\n\n', ["a", "b"], ["c"]),
        ('root ::= "a" |\n  "b"', ["a", "b"], []),
        ('root ::= "a"\n  | "b"\n  | other\nother ::= "c"', ["a", "b", "c"], []),
        ('# first\r\nroot ::= "a" other\r\nother ::= "b"\r\n', ["ab"], ["a"]),
        ('root ::= "(" root ")" | "a"'.replace("(", "[").replace(")", "]"), ["a", "[[a]]"], ["[a"]),
    ],
)
def test_what_may_be_written(text: str, yes: list[str], no: list[str]) -> None:
    for sample in yes:
        assert matches(text, sample), sample
    for sample in no:
        assert not matches(text, sample), sample


def test_another_rule_can_be_the_root() -> None:
    text = 'first ::= "a" second\nsecond ::= "b"'
    assert matches(text, "ab", "first") and matches(text, "b", "second")
    with pytest.raises(ParamsError, match="no rule 'root'"):
        Grammar.from_gbnf(text)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ('root ::= "a', 1, 10, "not closed"),
        ('root ::= "a\n"', 1, 10, "not closed"),
        ("root ::= [a", 1, 10, "not closed"),
        ("root ::= [a-", 1, 10, "not closed"),
        ("root ::= []", 1, 10, "no characters"),
        ("root ::= [z-a]", 1, 11, "ends before it begins"),
        ('root ::= ("a"', 1, 10, "not closed"),
        ('root ::= ("a" ::= )', 1, 15, "an item"),
        ('root ::= "a")', 1, 13, "an item"),
        ("root ::= *", 1, 10, "nothing to repeat"),
        ('root ::= "a" | +', 1, 16, "nothing to repeat"),
        ('root ::= "a"{', 1, 13, "was expected"),
        ('root ::= "a"{,2}', 1, 13, "was expected"),
        ('root ::= "a"{x}', 1, 13, "was expected"),
        ('root ::= "a"{3,2}', 1, 13, "smaller"),
        (f'root ::= "a"{{{MAX_REPEAT + 1}}}', 1, 13, "at most"),
        ('root ::= "a"{99999999999}', 1, 13, "at most"),
        (r'root ::= "\q"', 1, 11, "not known"),
        (r'root ::= "\x4"', 1, 11, "hexadecimal"),
        (r'root ::= "\uD800"', 1, 11, "no Unicode character"),
        (r'root ::= "\U00110000"', 1, 11, "no Unicode character"),
        ('root = "a"', 1, 6, "'::=' was expected"),
        ('root ::= "a"\n::= "b"', 2, 1, "a rule's name"),
        ('root ::= "a"\n\n  root ::= "b"', 3, 3, "defined twice"),
        ('root ::= "a"\n# b\nx ::= other "c"', 3, 7, "'other' is not defined"),
        ('root ::= "a" other : "b"', 1, 20, "an item"),
        ("(" * 200, 1, 1, "a rule's name"),
        ("root ::= " + "(" * 200, 1, 110, "deep"),
        ("root ::= é", 1, 10, "an item"),
    ],
)
def test_messages_name_line_and_column(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParamsError, match=rf"line {line}, column {column}: .*{re.escape(message)}"):
        parse(text)


@pytest.mark.parametrize("text", ["", "  \n\n", "# only a comment"])
def test_a_grammar_needs_a_rule(text: str) -> None:
    with pytest.raises(ParamsError, match="no rules"):
        parse(text)


def test_repetition_does_not_grow_without_bound() -> None:
    nested = 'root ::= ((("a" "b"){1000}){1000}){1000}'
    state = Grammar.from_gbnf(nested).start(vocab_of([b"a", b"b"]))  # each level is a rule of its own: 3000 calls
    state.accept(0)
    assert state.rejected() == [0, EOT]
    with pytest.raises(ParamsError, match="longer than"):
        parse("root ::= " + '"abcdefgh"{0,100000} ' * 30)


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet='root:= "abc[]()|*+?{},\\x-^#\n1', max_size=40))
def test_any_text_is_a_grammar_or_a_typed_error(text: str) -> None:
    for whole in (text, "root ::= " + text):
        try:
            Grammar.from_gbnf(whole).start(VOCAB).rejected()
        except ParamsError as error:
            assert str(error)
