# cython: wraparound=True, boundscheck=True
"""GBNF, the notation for grammars: text to rules.

    root   ::= "turn " ("on" | "off") " the " colour+ "."       # a comment
    colour ::= [a-z]{3,6} | [^a-z \\n] | other?

A rule is `name ::= alternatives`; names have letters, digits, - and _. An alternative is a row of items: "text",
[characters] or [^other characters] with ranges, `.` for any character, another rule's name, or (alternatives in
parentheses). An item may be followed by ? (once or not), * (any number of times), + (at least once), {n}, {n,} or
{n,m}. A rule ends with its line, unless a parenthesis is open or a | stands at either side of the line's end.
Escapes: \\t \\r \\n \\\\ \\" \\[ \\] \\- \\^, \\xHH, \\uHHHH, \\UHHHHHHHH.

The result is what whisper.h takes (`whisper_grammar_element`). Repetition becomes rules of its own, as in the grammar
parser of whisper.cpp's examples: S* is `S' ::= S S' | ""`, S+ is `S' ::= S S' | S`, S? is `S' ::= S | ""`.
"""

from whispyx.errors import ParamsError

END, ALT, RULE_REF, CHAR, CHAR_NOT, CHAR_RNG_UPPER, CHAR_ALT = range(7)
LAST_CHARACTER = 0x10FFFF
MAX_ELEMENTS = 4_000_000        # of all rules together; repetition multiplies
MAX_DEPTH = 100                 # of parentheses
MAX_REPEAT = 100_000
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^"}
_HEX = {"x": 2, "u": 4, "U": 8}
_MORE = {"?": (0, 1), "*": (0, None), "+": (1, None)}


class _Parser:
    """One reading of one text. `at` is the place in it."""

    def __init__(self, text):
        self.text, self.at = text, 0
        self.symbols = {}       # name -> number of the rule
        self.mentioned = {}     # number -> place of the first mention
        self.rules = {}         # number -> elements
        self.n_elements = 0

    def error(self, what, at=None):
        if at is None:
            at = self.at
            what += f", not {self.text[at]!r}" if at < len(self.text) else ", not the end"
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        return ParamsError(f"grammar, line {line}, column {column}: {what}")

    def peek(self):
        return self.text[self.at] if self.at < len(self.text) else ""

    def space(self, over_lines):
        while self.at < len(self.text):
            ch = self.text[self.at]
            if ch == "#":
                while self.at < len(self.text) and self.text[self.at] not in "\r\n":
                    self.at += 1
            elif ch in " \t" or (over_lines and ch in "\r\n"):
                self.at += 1
            else:
                break

    def name(self):
        start = self.at
        while self.peek() and self.peek() in _WORD:
            self.at += 1
        if start == self.at:
            raise self.error("a rule's name was expected")
        return self.text[start:self.at]

    def symbol(self, name, at):
        number = self.symbols.setdefault(name, len(self.symbols))
        self.mentioned.setdefault(number, at)
        return number

    def define(self, number, elements):
        self.n_elements += len(elements) + 1
        if self.n_elements > MAX_ELEMENTS:
            raise self.error(f"the rules are longer than {MAX_ELEMENTS} elements, repetitions written out", self.at)
        self.rules[number] = [*elements, (END, 0)]

    def new_rule(self, base, elements=None):
        """Add a rule of our own and return a reference to it."""
        n = len(self.symbols)
        while f"{base}_{n}" in self.symbols:
            n += 1
        number = self.symbol(f"{base}_{n}", self.at)
        if elements is not None:
            self.define(number, elements)
        return number

    def parse(self):
        self.space(True)
        while self.at < len(self.text):
            start = self.at
            name = self.name()
            number = self.symbol(name, start)
            self.space(False)
            if not self.text.startswith("::=", self.at):
                raise self.error(f"'::=' was expected after the name {name!r}")
            if number in self.rules:
                raise self.error(f"the rule {name!r} is defined twice", start)
            self.at += 3
            self.space(True)
            self.define(number, self.alternatives(name, 0))
            if self.peek() not in ("", "\r", "\n"):
                raise self.error("an item, '|' or the end of the line was expected")
            self.space(True)
        if not self.rules:
            raise ParamsError("the grammar has no rules")
        for name, number in self.symbols.items():
            if number not in self.rules:
                raise self.error(f"the rule {name!r} is not defined", self.mentioned[number])
        return [self.rules[i] for i in range(len(self.symbols))], dict(self.symbols)

    def alternatives(self, base, depth):
        elements = self.sequence(base, depth)
        while True:
            here = self.at
            self.space(True)        # the next line may begin with |
            if self.peek() != "|":
                if depth == 0:
                    self.at = here
                return elements
            self.at += 1
            self.space(True)
            elements.append((ALT, 0))
            elements += self.sequence(base, depth)

    def sequence(self, base, depth):
        elements = []
        last = None                 # where the last item begins
        while True:
            ch, start = self.peek(), self.at
            if ch and ch in '"[.(' or ch and ch in _WORD:
                last = len(elements)
            if ch == '"':
                elements += self.literal()
            elif ch == "[":
                elements += self.character_class()
            elif ch == ".":
                self.at += 1
                elements += [(CHAR, 0), (CHAR_RNG_UPPER, LAST_CHARACTER)]
            elif ch == "(":
                elements.append((RULE_REF, self.group(base, depth)))
            elif ch and ch in _WORD:
                elements.append((RULE_REF, self.symbol(self.name(), start)))
            elif ch and ch in "?*+{":
                least, most = self.bounds()
                if last is None:
                    raise self.error("there is nothing to repeat", start)
                elements[last:] = self.repeated(base, elements[last:], least, most)
            else:
                return elements
            self.space(depth > 0)

    def group(self, base, depth):
        start = self.at
        if depth == MAX_DEPTH:
            raise self.error(f"parentheses lie more than {MAX_DEPTH} deep", start)
        number = self.new_rule(base)
        self.at += 1
        self.space(True)
        elements = self.alternatives(base, depth + 1)
        if self.peek() != ")":
            if self.at == len(self.text):
                raise self.error("this parenthesis is not closed", start)
            raise self.error("an item, '|' or ')' was expected")
        self.at += 1
        self.define(number, elements)
        return number

    def character(self):
        """One character, escaped or not."""
        start, ch = self.at, self.peek()
        self.at += 1
        if ch != "\\":
            value = ord(ch)
        else:
            ch = self.peek()
            self.at += 1
            if ch and ch in _HEX:
                digits = self.text[self.at:self.at + _HEX[ch]]
                if len(digits) != _HEX[ch] or any([d not in "0123456789abcdefABCDEF" for d in digits]):
                    raise self.error(f"\\{ch} needs {_HEX[ch]} hexadecimal digits", start)
                self.at += _HEX[ch]
                value = int(digits, 16)
            elif ch and ch in _ESCAPES:
                value = ord(_ESCAPES[ch])
            else:
                raise self.error(f"the escape {self.text[start:start + 2]!r} is not known", start)
        if value > LAST_CHARACTER or 0xD800 <= value <= 0xDFFF:
            raise self.error(f"{value:#x} is no Unicode character", start)
        return value

    def inside(self, end, start, what):
        """Whether the closing sign has not come yet; it is taken when it has."""
        ch = self.peek()
        if ch in ("", "\r", "\n"):
            raise self.error(f"this {what} is not closed in its line", start)
        if ch != end:
            return True
        self.at += 1
        return False

    def literal(self):
        start, elements = self.at, []
        self.at += 1
        while self.inside('"', start, "text"):
            elements.append((CHAR, self.character()))
        return elements

    def character_class(self):
        start, elements = self.at, []
        self.at += 1
        kind = CHAR
        if self.peek() == "^":
            self.at += 1
            kind = CHAR_NOT
        while self.inside("]", start, "class"):
            here = self.at
            low = self.character()
            elements.append((CHAR_ALT if elements else kind, low))
            if self.peek() == "-" and self.text[self.at + 1:self.at + 2] not in ("]", ""):
                self.at += 1
                if self.inside("", start, "class"):
                    high = self.character()
                if high < low:
                    raise self.error("this range ends before it begins", here)
                elements.append((CHAR_RNG_UPPER, high))
        if not elements:
            raise self.error("this class has no characters", start)
        return elements

    def bounds(self):
        """How often the item before may come: (least, most), most None without limit."""
        start = self.at
        ch = self.peek()
        self.at += 1
        if ch != "{":
            return _MORE[ch]
        end = self.text.find("}", self.at)
        least, comma, most = self.text[self.at:end].partition(",") if end >= 0 else ("", "", "")
        least, most = least.strip(), most.strip()
        if not (least.isascii() and least.isdigit()) or not (most == "" or (most.isascii() and most.isdigit())):
            raise self.error("{n}, {n,} or {n,m} was expected", start)
        if max(len(least), len(most)) > 9 or int(least) > MAX_REPEAT or int(most or 0) > MAX_REPEAT:
            raise self.error(f"at most {MAX_REPEAT} repetitions are possible", start)
        self.at = end + 1
        least = int(least)
        most = (int(most) if most else None) if comma else least
        if most is not None and most < least:
            raise self.error("the second number is smaller than the first", start)
        return least, most

    def repeated(self, base, item, least, most):
        """Elements that stand for an item which comes `least` to `most` times."""
        if (least, most) == (1, None):
            number = self.new_rule(base)
            again = [(RULE_REF, number)]
            self.define(number, [*item, *again, (ALT, 0), *item])
            return again
        if len(item) > 1 and (least, most) not in ((0, 1), (0, None)):
            item = [(RULE_REF, self.new_rule(base, item))]
        if self.n_elements + least * len(item) > MAX_ELEMENTS:
            raise self.error(f"the rules are longer than {MAX_ELEMENTS} elements, repetitions written out", self.at)
        elements = item * least
        if most is None:
            number = self.new_rule(base)
            again = [(RULE_REF, number)]
            self.define(number, [*item, *again, (ALT, 0)])
            return elements + again
        rest = []
        for _ in range(most - least):
            rest = [(RULE_REF, self.new_rule(base, [*item, *rest, (ALT, 0)]))]
        return elements + rest


def parse(str text not None) -> tuple[list[list[tuple[int, int]]], dict[str, int]]:
    """Read a grammar.

    Returns
    -------
    rules, symbols
        By rule its elements (type, value), the last one END; and the number of each rule by its name, in order.

    Raises
    ------
    ParamsError
        The text is no grammar; the message says what was expected in which line and column.
    """
    return _Parser(text).parse()
