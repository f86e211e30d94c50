"""Suppressed tokens: patterns over characters, also split ones, against Python's `re`; nothing but text; no hang."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.small_vocab import EOT, N_VOCAB, vocab_of
from tests.oracle.grammar import completions
from whispyx._core.regex import compile_pattern, named_class
from whispyx._core.suppress import RegexSuppressor
from whispyx.errors import ParamsError

ROOT = Path(__file__).resolve().parents[2]
ALPHABET = "ab1ü€\n"
PIECES = [*(c.encode() for c in ALPHABET), b"\xc3", b"\xbc", b"\xe2", b"\x82", b"\xac", b"\xff"]

atoms = st.one_of(
    st.sampled_from(ALPHABET),
    st.sampled_from([".", r"\d", r"\D", r"\w", "[ab]", "[^ab]", "[^ü]", "[a-ü]", r"[\d€]", "[ü-€]"]),
)
quantifiers = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, quantifiers).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)
words = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map(b"".join), min_size=1, max_size=12)


def expected(pattern: str, search: bool, pending: bytes, word: bytes) -> bool:
    """What `re` says of a token after some bytes of a character, trying every character that it may end in."""
    compiled = re.compile(pattern, re.DOTALL)
    if pending and not any(c.encode()[: len(pending) + 1] == pending + word[:1] for c in completions(pending)):
        pending = b""  # the token does not go on with it
    raw = pending + word
    tail = next((raw[-k:] for k in (3, 2, 1) if len(raw) >= k and is_begun(raw[-k:])), b"")
    text = raw[: len(raw) - len(tail)].decode("utf-8", "replace")
    find = compiled.search if search else compiled.fullmatch
    endings: tuple[str, ...] = ("",)
    if tail:
        every = completions(tail)
        endings = tuple({every[0], every[-1], *[c for c in every if c in "ü€ýû₫₭" or len(every) <= 64]})
    return all(find(text + ending) is not None for ending in endings)


def is_begun(tail: bytes) -> bool:
    """Whether bytes are the beginning of a character, and not all of it."""
    return len(completions(tail)) > 1


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(pattern=patterns, search=st.booleans(), words=words, before=st.integers(0, 11))
def test_suppressed_tokens_are_those_that_re_matches(
    pattern: str, search: bool, words: list[bytes], before: int
) -> None:
    vocab = vocab_of([*words, b"\xc3", b"\xe2\x82"])
    if search and re.compile(pattern, re.DOTALL).fullmatch(""):
        with pytest.raises(ParamsError, match="no characters at all"):
            RegexSuppressor(vocab, pattern, search)
        return
    found = RegexSuppressor(vocab, pattern, search)
    every = [*words, b"\xc3", b"\xe2\x82"]
    for so_far, pending in (((), b""), ((len(words),), b"\xc3"), ((len(words) + 1,), b"\xe2\x82")):
        wanted = [i for i, word in enumerate(every) if expected(pattern, search, pending, word)]
        assert found.suppressed(so_far) == wanted, (pattern, search, every, pending)


@pytest.mark.parametrize(
    ("pattern", "search", "suppressed"),
    [
        (r"\d", False, ["1"]),
        ("[0-9]+", False, ["1", "12"]),
        ("[0-9]+", True, ["1", "12", " 1"]),
        ("[[:digit:]]+", False, ["1", "12"]),
        ("[[:alpha:][:digit:]_]+", False, ["1", "12", "a", "The", "ü", "aaa"]),
        ("[[:punct:]]", False, [",", "!"]),
        ("[[.a.]]", False, ["a"]),
        ("[[=a=]1]", False, ["1", "a"]),
        ("ü|ö|ä", False, ["ü"]),
        (".", False, ["1", "a", "ü", ",", "!", "\n"]),
        (".*", False, ["1", "12", " 1", "a", "The", "ü", ",", "!", "\n", " thanks", "aaa"]),
        ("", False, []),
        ("", True, []),
        (r"\u00fc|\x31", False, ["1", "ü"]),
        ("^a$", False, ["a"]),
        ("^a", True, ["a", "aaa"]),
        ("a$|^T", True, ["a", "The", "aaa"]),
        ("[]", False, []),
        ("[^]", False, ["1", "a", "ü", ",", "!", "\n"]),
        ("(?i)THE", False, ["The"]),
        (r"(.)\1+", False, ["aaa"]),
        (r"(?! ?\d+$).*", False, ["a", "The", "ü", ",", "!", "\n", " thanks", "aaa"]),
        (r"\bthanks", True, [" thanks"]),
        ("a{2,}", False, ["aaa"]),
        (r"\cJ", False, ["\n"]),
    ],
)
def test_patterns_of_std_regex(pattern: str, search: bool, suppressed: list[str]) -> None:
    words = ["1", "12", " 1", "a", "The", "ü", ",", "!", "\n", " thanks", "aaa"]
    found = RegexSuppressor(vocab_of([word.encode() for word in words]), pattern, search)
    assert [words[i] for i in found.suppressed()] == suppressed


@pytest.mark.parametrize(
    "pattern",
    ["[", "(", ")", "a)", "*", "+a", "a**", "a{2,1}", "{", "a{", "a{x}", "[b-a]", r"[\d-x]", r"[a-\d]", "\\", r"\x4",
     r"\u12", r"\e", "[[:foo:]]", "[[:digit:]", "(?<n>a)", "(?P<n>a)", "^*", r"\1(a)(", r"\1", "(?=a", "(?<=a*)b",
     "a{1001}", "((((a{999}){999}){999}){999}", "(" * 500, r"\U00110000"],
)  # fmt: skip
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ParamsError):
        RegexSuppressor(vocab_of([b"a"]), pattern, False)


def test_the_message_names_the_place() -> None:
    with pytest.raises(ParamsError, match=r"position 3: this class is not closed"):
        RegexSuppressor(vocab_of([b"a"]), "abc[", False)


def test_B24_the_pattern_is_compared_with_text_not_with_bytes() -> None:
    vocab = vocab_of(["ü".encode(), "€".encode(), b"ab", b"\xc3"])
    assert RegexSuppressor(vocab, ".", False).suppressed() == [0, 1, 3]
    assert RegexSuppressor(vocab, "..", False).suppressed() == [2]
    assert RegexSuppressor(vocab, "[üx]", False).suppressed() == [0]


def test_B24_a_character_split_over_tokens_counts_as_a_whole() -> None:
    vocab = vocab_of(["ü".encode(), b"\xc3", b"\xbc", b"\xb1", b" f\xc3", b"\xbcr", b"a"])
    found = RegexSuppressor(vocab, "ü|ö|ä", False)
    assert found.suppressed() == [0]  # the first byte alone may become another letter
    assert found.suppressed([1]) == [0, 2]
    assert found.suppressed([4]) == [0, 2]
    assert found.suppressed([1, 3]) == [0]  # the character is over
    assert found.suppressed([1, 6]) == [0]
    assert found.suppressed([1, EOT + 200]) == [0]
    anywhere = RegexSuppressor(vocab, "ü", True)
    assert anywhere.suppressed() == [0]
    assert anywhere.suppressed([4]) == [0, 2, 5]


def test_B24_a_first_byte_goes_when_all_that_it_can_become_go() -> None:
    vocab = vocab_of([b"\xc3", b"\xc4", b"\xbc", b"a"])
    assert RegexSuppressor(vocab, "[À-ÿ]", False).suppressed() == [0]
    assert RegexSuppressor(vocab, "[À-þ]", False).suppressed() == []
    assert RegexSuppressor(vocab, r"(?!z)[À-ÿ]", False).suppressed() == [0]
    assert RegexSuppressor(vocab, r"(?!z)[À-þ]", False).suppressed() == []


def test_special_tokens_and_timestamps_are_never_suppressed() -> None:
    # whisper.cpp matches their made-up texts too, such as [_TT_50] or [_EOT_].
    vocab = vocab_of([b"a", b"[_TT_1]"])
    for pattern in (".*", r"\[_.*", "[^]*", "(?!x).*"):
        assert all(token < EOT for token in RegexSuppressor(vocab, pattern, False).suppressed())
    assert RegexSuppressor(vocab, r"\[_TT_.*\]", False).suppressed() == [1]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a*)*b",
        "(a|a)*b",
        "(a|aa)+$",
        "(.*)*(.*)*=",
        "((a?){300}){300}",
        "(a?){1000}a{1000}",
        "(-+)+x",
        "(()*)*",
    ],
)
def test_patterns_that_make_others_hang_do_not(pattern: str) -> None:
    body = f"""
        from tests.core.small_vocab import vocab_of
        from whispyx._core.suppress import RegexSuppressor
        words = [b"a" * n for n in range(1, 67)] + [b"-" * 64, b"ab", b"a" * 40 + b"b", b"a" * 40 + b"!"]
        print(len(RegexSuppressor(vocab_of(words), {pattern!r}, False).suppressed()))
        """
    code = "\n".join(line.strip() for line in body.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("pattern", ["(a+)+(?=b)", r"(a|a)*\b", r"(?i)(a*)*b", r"(\d+)\1(a|b)+", "(?!x)" + "a*" * 7])
def test_patterns_only_re_can_read_are_refused_where_they_could_hang(pattern: str) -> None:
    with pytest.raises(ParamsError, match=r"for ever|unbounded"):
        RegexSuppressor(vocab_of([b"a" * 60]), pattern, False)


def test_classes_are_those_of_re() -> None:
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    for name in ("d", "w", "s"):
        members = {c for low, high in named_class(name) for c in range(low, high + 1)}
        assert members == {ord(c) for c in re.findall(rf"\{name}", every)}


def test_objects_that_were_never_made_refuse_to_work() -> None:
    unmade = RegexSuppressor.__new__(RegexSuppressor)
    with pytest.raises(TypeError):
        unmade.suppressed()
    for wrong in ((None, "a", False), (vocab_of([b"a"]), None, False)):
        with pytest.raises(TypeError):
            RegexSuppressor(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ParamsError):
        RegexSuppressor(vocab_of([b"a"]), "a", False).suppressed([N_VOCAB])
    assert compile_pattern("a", False)[1] is None
