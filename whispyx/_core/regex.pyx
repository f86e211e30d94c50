# cython: wraparound=True, boundscheck=True
"""Regular expressions in the syntax of C++'s `std::regex` (ECMAScript, with POSIX classes), over characters.

Most patterns become rules for `whispyx._core.automaton`, which reads a text once, whatever the pattern. Those with
look-around, back-references, word boundaries or (?i) become a pattern for Python's `re`, which tries one way after the
other; there, forms that may take for ever are refused.

Classes mean Unicode: \\d all decimal digits, \\w letters, numbers and _, [:punct:] punctuation and symbols. `.` is any
character, line ends too.
"""

import functools
import re
import unicodedata

from whispyx.errors import ParamsError

LAST_CHARACTER = 0x10FFFF
ANY = ((0, LAST_CHARACTER),)
MAX_COUNT = 1000            # of a repetition {n,m}; tokens are shorter
MAX_ITEMS = 200_000         # of the rules, with repetitions written out
MAX_DEPTH = 100             # of parentheses
MAX_OPEN_REPEATS = 6        # unbounded repetitions that `re` gets
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_HEX = {"x": 2, "u": 4, "U": 8}
_POSIX = {
    "alpha": str.isalpha,
    "digit": str.isdecimal,
    "alnum": str.isalnum,
    "upper": str.isupper,
    "lower": str.islower,
    "space": str.isspace,
    "blank": lambda c: c == "\t" or unicodedata.category(c) == "Zs",
    "punct": lambda c: unicodedata.category(c)[0] in "PS",
    "cntrl": lambda c: unicodedata.category(c) == "Cc",
    "print": str.isprintable,
    "graph": lambda c: c.isprintable() and not c.isspace(),
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
    "w": lambda c: c.isalnum() or c == "_",
}
_POSIX["d"], _POSIX["s"] = _POSIX["digit"], _POSIX["space"]
# Planes 4 to 13 hold no characters, 15 and 16 private ones, which are in none of the classes.
_PLANES = (range(0, 0xD800), range(0xE000, 0x40000), range(0xE0000, 0xF0000))


def merge(ranges):
    """Sorted ranges without overlap, neighbours joined."""
    merged = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges):
    rest, begin = [], 0
    for low, high in merge(ranges):
        if begin < low:
            rest.append((begin, low - 1))
        begin = high + 1
    if begin <= LAST_CHARACTER:
        rest.append((begin, LAST_CHARACTER))
    return tuple(rest)


@functools.lru_cache(maxsize=None)
def named_class(name):
    """Ranges of the characters of a class."""
    cdef int c, begin = -1
    belongs, found = _POSIX[name], []
    for plane in _PLANES:
        for c in plane:
            if belongs(chr(c)):
                if begin < 0:
                    begin = c
            elif begin >= 0:
                found.append((begin, c - 1))
                begin = -1
        if begin >= 0:
            found.append((begin, plane[-1]))
            begin = -1
    return tuple(found)


class _Parser:
    """One reading of one pattern, into a tree of tuples.

    ("set", ranges), ("cat", items), ("alt", items), ("rep", item, least, most or None), ("cap", item), and what only
    `re` can do: ("begin",), ("end",), ("word", sign), ("look", sign, item), ("ref", number).
    """

    def __init__(self, pattern):
        self.pattern, self.at = pattern, 0
        self.n_groups = self.deepest_reference = 0

    def error(self, what, at=None):
        return ParamsError(f"suppress_regex {self.pattern!r}, position {self.at if at is None else at}: {what}")

    def peek(self):
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def take(self, text):
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def parse(self):
        tree = self.alternatives(0)
        if self.at < len(self.pattern):
            raise self.error("this parenthesis was never opened")
        if self.deepest_reference > self.n_groups:
            raise self.error(f"there is no group {self.deepest_reference}")
        return tree

    def alternatives(self, depth):
        found = [self.sequence(depth)]
        while self.take("|"):
            found.append(self.sequence(depth))
        return found[0] if len(found) == 1 else ("alt", found)

    def sequence(self, depth):
        items = []
        while self.peek() not in ("", "|", ")"):
            start = self.at
            item = self.atom(depth)
            bounds = self.bounds()
            if bounds is not None:
                if item[0] in ("begin", "end", "word", "look"):
                    raise self.error("there is nothing to repeat", start)
                item = ("rep", item, *bounds)
                self.take("?")      # as few as possible: the same texts match
                if self.peek() in ("*", "+", "?") and self.peek():
                    raise self.error("there is nothing to repeat")
            items.append(item)
        return ("cat", items)

    def bounds(self):
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        found = re.compile(r"\{([0-9]{1,9})(,([0-9]{0,9}))?\}").match(self.pattern, self.at)
        if found is None:
            if self.peek() == "{":
                raise self.error("{n}, {n,} or {n,m} was expected; \\{ is the sign itself")
            return None
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > MAX_COUNT:
            raise self.error(f"at most {MAX_COUNT} repetitions are possible")
        if most is not None and most < least:
            raise self.error("the second number is smaller than the first")
        self.at = found.end()
        return least, most

    def atom(self, depth):
        start, ch = self.at, self.peek()
        self.at += 1
        if ch == "(":
            return self.group(start, depth)
        if ch == "[":
            return ("set", self.character_class(start))
        if ch == ".":
            return ("set", ANY)
        if ch == "^":
            return ("begin",)
        if ch == "$":
            return ("end",)
        if ch in "*+?{":
            raise self.error("there is nothing to repeat", start)
        if ch != "\\":
            return ("set", ((ord(ch), ord(ch)),))
        ch = self.peek()
        if ch in ("b", "B"):
            self.at += 1
            return ("word", ch == "b")
        if ch and ch in "123456789":
            number = re.compile("[0-9]{1,4}").match(self.pattern, self.at)[0]
            self.at += len(number)
            self.deepest_reference = max(self.deepest_reference, int(number))
            return ("ref", int(number))
        return ("set", self.escape(start))

    def escape(self, start):
        """Ranges that an escape stands for, inside of a class or outside."""
        ch = self.peek()
        self.at += 1
        if not ch:
            raise self.error("an escape was begun, but nothing follows", start)
        if ch in "dsw":
            return named_class(ch)
        if ch in "DSW":
            return complement(named_class(ch.lower()))
        if ch in _CONTROLS:
            value = _CONTROLS[ch]
        elif ch == "c" and self.peek().isascii() and self.peek().isalpha():
            value = ord(self.peek()) % 32
            self.at += 1
        elif ch in _HEX:
            digits = self.pattern[self.at:self.at + _HEX[ch]]
            if len(digits) != _HEX[ch] or any([d not in "0123456789abcdefABCDEF" for d in digits]):
                raise self.error(f"\\{ch} needs {_HEX[ch]} hexadecimal digits", start)
            value = int(digits, 16)
            self.at += len(digits)
        elif ch.isascii() and ch.isalnum():
            raise self.error(f"the escape \\{ch} is not known", start)
        else:
            value = ord(ch)
        if value > LAST_CHARACTER:
            raise self.error(f"{value:#x} is no Unicode character", start)
        return ((value, value),)

    def group(self, start, depth):
        if depth == MAX_DEPTH:
            raise self.error(f"parentheses lie more than {MAX_DEPTH} deep", start)
        kind = next((kind for kind in ("?:", "?=", "?!", "?<=", "?<!") if self.take(kind)), "")
        if not kind and self.peek() == "?":
            raise self.error("(?: (?= (?! (?<= and (?<! are known, and (?i) at the very beginning", start)
        if not kind:
            self.n_groups += 1
        tree = self.alternatives(depth + 1)
        if not self.take(")"):
            raise self.error("this parenthesis is not closed", start)
        if kind in ("", "?:"):
            return ("cap", tree) if not kind else ("cat", [tree])
        return ("look", kind, tree)

    def character_class(self, start):
        negated, ranges = self.take("^"), []
        while not self.take("]"):
            here = self.at
            low = self.member(start)
            if self.peek() == "-" and self.pattern[self.at + 1:self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.member(start)
                if [len(low), len(high)] != [1, 1] or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise self.error("a class cannot be the end of a range", here)
                if high < low:
                    raise self.error("this range ends before it begins", here)
                low = ((low[0][0], high[0][0]),)
            ranges += low
        return complement(ranges) if negated else merge(ranges)

    def member(self, start):
        """Ranges of one entry of a class."""
        here, ch = self.at, self.peek()
        self.at += 1
        if not ch:
            raise self.error("this class is not closed", start)
        if ch == "[" and self.peek() and self.peek() in ":.=":
            sign = self.peek()
            end = self.pattern.find(sign + "]", self.at + 1)
            name = self.pattern[self.at + 1:end] if end >= 0 else ""
            self.at = end + 2
            if end >= 0 and sign == ":" and name in _POSIX:
                return named_class(name)
            if end >= 0 and sign != ":" and len(name) == 1:
                return ((ord(name), ord(name)),)
            raise self.error("this class of characters is not known", here)
        if ch != "\\":
            return ((ord(ch), ord(ch)),)
        if self.take("b"):
            return ((8, 8),)
        return self.escape(here)


def _without_anchor(tree, kind):
    """Take away a ^ at the beginning, or a $ at the end; return the rest and whether it was there."""
    last = -1 if kind == "end" else 0
    if tree[0] == "cat" and tree[1] and tree[1][last][0] == kind:
        items = tree[1][1:] if kind == "begin" else tree[1][:-1]
        return _without_anchor(("cat", items), kind)[0], True
    return tree, False


def _anchored(tree, search):
    """The tree for a match of the whole text, without the anchors that this makes needless."""
    if tree[0] == "alt":
        return ("alt", [_anchored(item, search) for item in tree[1]])
    if tree[0] == "cat" and len(tree[1]) == 1 and tree[1][0][0] in ("cat", "alt", "cap"):
        inner = tree[1][0][1] if tree[1][0][0] == "cap" else tree[1][0]
        return _anchored(inner, search)
    tree, from_begin = _without_anchor(tree, "begin")
    tree, to_end = _without_anchor(tree, "end")
    if not search:
        return tree
    anything = ("rep", ("set", ANY), 0, None)
    return ("cat", [*([] if from_begin else [anything]), tree, *([] if to_end else [anything])])


def _parts(tree):
    kind = tree[0]
    if kind in ("cat", "alt"):
        return tree[1]
    return tree[1:2] if kind in ("rep", "cap") else tree[2:] if kind == "look" else ()


def _has(tree, kinds):
    return tree[0] in kinds or any([_has(part, kinds) for part in _parts(tree)])


def _may_be_empty(tree):
    kind = tree[0]
    if kind == "alt":
        return any([_may_be_empty(part) for part in tree[1]])
    if kind == "rep" and tree[2] == 0:
        return True
    return kind != "set" and all([_may_be_empty(part) for part in _parts(tree) if kind != "look"])


class _Rules:
    """Turns a tree into rules for a `Program`; rule 0 is the whole."""

    def __init__(self, tree):
        self.rules, self.n_items = [None], 0
        self.rules[0] = [self.items(tree)]

    def rule(self, alternatives):
        self.count(sum(map(len, alternatives)) + 1)
        self.rules.append(alternatives)
        return len(self.rules) - 1

    def count(self, n):
        self.n_items += n
        if self.n_items > MAX_ITEMS:
            raise ParamsError("suppress_regex is too long with its repetitions written out")

    def items(self, tree):
        kind = tree[0]
        if kind == "set":
            return [tree[1]]
        if kind == "cap":
            return self.items(tree[1])
        if kind == "cat":
            return [item for part in tree[1] for item in self.items(part)]
        if kind == "alt":
            return [self.rule([self.items(part) for part in tree[1]])]
        item, least, most = self.items(tree[1]), tree[2], tree[3]
        if len(item) != 1:
            item = [self.rule([item])]
        self.count(least)
        if most is None:
            number = self.rule([[], []])
            self.rules[number][0] = [*item, number]
            return item * least + [number]
        rest = []
        for _ in range(most - least):
            rest = [self.rule([[*item, *rest], []])]
        return item * least + rest


def _for_re(tree):
    """The tree as a pattern for Python's `re`."""
    kind = tree[0]
    if kind == "set":
        if not tree[1]:
            return "(?!)"
        return "[" + "".join([f"\\U{low:08x}-\\U{high:08x}" for low, high in tree[1]]) + "]"
    if kind == "cat":
        return "(?:" + "".join([_for_re(item) for item in tree[1]]) + ")"
    if kind == "alt":
        return "(?:" + "|".join([_for_re(item) for item in tree[1]]) + ")"
    if kind == "cap":
        return f"({_for_re(tree[1])})"
    if kind == "look":
        return f"({tree[1]}{_for_re(tree[2])})"
    if kind == "ref":
        return f"(?:\\{tree[1]})"
    if kind == "rep":
        return f"(?:{_for_re(tree[1])}){{{tree[2]},{'' if tree[3] is None else tree[3]}}}"
    return {"begin": "\\A", "end": "\\Z"}.get(kind) or ("\\b" if tree[1] else "\\B")


def _refuse_slow(tree):
    """Refuse what makes `re` try ever more ways: choices within a repetition, many unbounded repetitions."""
    n_open = 0
    waiting = [tree]
    while waiting:
        tree = waiting.pop()
        if tree[0] == "rep":
            n_open += tree[3] is None
            if tree[3] != 1 and _has(tree[1], ("rep", "alt")):
                raise ParamsError("suppress_regex: where (?i), look-around, \\b or back-references are used, what is "
                                  "repeated must not hold | or repetitions: it could take for ever")
        waiting += _parts(tree)
    if n_open > MAX_OPEN_REPEATS:
        raise ParamsError(f"suppress_regex: where (?i), look-around, \\b or back-references are used, at most "
                          f"{MAX_OPEN_REPEATS} unbounded repetitions are possible")


def compile_pattern(str pattern not None, bint search):
    """Read a pattern.

    Returns
    -------
    rules, compiled
        Rules for `Program`, by which a text that matches is a whole one, and None; or None and a compiled pattern of
        `re` whose `fullmatch` (or `search`) decides.

    Raises
    ------
    ParamsError
        The pattern is wrong, or could take for ever; or it is searched for and matches no characters, so that it
        would be found in every text.
    """
    parser = _Parser(pattern)
    ignore_case = parser.take("(?i)")
    tree = parser.parse()
    if search and _may_be_empty(tree) and not _has(tree, ("look",)):
        raise ParamsError(f"suppress_regex {pattern!r} matches no characters at all: it would be found in every token")
    whole = _anchored(tree, search)
    if not ignore_case and not _has(whole, ("begin", "end", "word", "look", "ref")):
        return _Rules(whole).rules, None
    _refuse_slow(tree)
    try:
        return None, re.compile(_for_re(tree), re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ParamsError(f"suppress_regex {pattern!r}: {error}") from None
