# distutils: language = c++
# cython: wraparound=True, boundscheck=True
"""Grammars that a transcript should follow: rules, checked when they are made, and how far a text has come in them.

The rules are those of GBNF as whisper.h takes them (`whisper_grammar_element`). They are copied and compiled; see
`whispyx._core.automaton` for how they are followed.
"""

import numpy as np

from whispyx._core.automaton cimport DEAD, Machine, Program, Range
from whispyx._core.trie cimport BROKEN, COMPLETE, Utf8, feed, trie_of
from whispyx._core.vocab cimport Vocab

from whispyx._core.gbnf import ALT, CHAR, CHAR_ALT, CHAR_NOT, CHAR_RNG_UPPER, END, LAST_CHARACTER, RULE_REF, parse
from whispyx.errors import ParamsError

cdef enum:
    FRESH_START = 32 * 1024 * 1024      # bytes of caches after which a new text begins with empty ones


def _ranges(list pairs, bint negated):
    """Sorted ranges without overlap, neighbours joined; all other characters when negated."""
    merged = []
    for low, high in sorted(pairs):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    if not negated:
        return tuple(merged)
    rest, begin = [], 0
    for low, high in merged:
        if begin < low:
            rest.append((begin, low - 1))
        begin = high + 1
    if begin <= LAST_CHARACTER:
        rest.append((begin, LAST_CHARACTER))
    return tuple(rest)


cdef list _alternatives(str name, elements, int n_rules):
    """Check one rule and return its alternatives in the form of `Program`."""
    cdef list alternatives = [[]], pairs = None
    cdef bint negated = False, bounded = True
    cdef Py_ssize_t n, i
    try:
        elements = [(kind.__index__(), value.__index__()) for kind, value in elements]
    except (TypeError, ValueError, AttributeError):
        raise ParamsError(f"{name}: a rule is a list of (type, value) pairs of integers") from None
    n = len(elements)
    if n == 0 or elements[n - 1][0] != END:
        raise ParamsError(f"{name} does not end with an END element")
    for i, (kind, value) in enumerate(elements):
        here = f"{name}, element {i}"
        if kind in (CHAR, CHAR_NOT, CHAR_ALT, CHAR_RNG_UPPER):
            if not 0 <= value <= LAST_CHARACTER:
                raise ParamsError(f"{here}: {value} is no Unicode character")
            if kind in (CHAR, CHAR_NOT):
                pairs, negated, bounded = [], kind == CHAR_NOT, False
                pairs.append((value, value))
            elif pairs is None:
                raise ParamsError(f"{here}: a class goes on, but none was begun")
            elif kind == CHAR_ALT:
                pairs.append((value, value))
                bounded = False
            elif bounded:
                raise ParamsError(f"{here}: a range has two ends")
            elif value < pairs[-1][0]:
                raise ParamsError(f"{here}: a range ends before it begins")
            else:
                pairs[-1] = (pairs[-1][0], value)
                bounded = True
            if elements[i + 1][0] not in (CHAR_ALT, CHAR_RNG_UPPER):
                alternatives[-1].append(_ranges(pairs, negated))
                pairs = None
        elif kind == RULE_REF:
            if not 0 <= value < n_rules:
                raise ParamsError(f"{here}: there is no rule {value}, only 0 to {n_rules - 1}")
            alternatives[-1].append(value)
        elif kind == ALT:
            alternatives.append([])
        elif kind != END:
            raise ParamsError(f"{here}: {kind} is no element type")
        elif i + 1 < n:
            raise ParamsError(f"{here}: elements after the END element")
    return alternatives


cdef set _nullable(list rules):
    """Rules that match the empty text."""
    cdef list users = [[] for _ in rules], waiting = []
    cdef dict missing = {}              # (rule, alternative) of calls only -> how many are not known to be nullable
    cdef set found = set()
    for r, alternatives in enumerate(rules):
        for a, alternative in enumerate(alternatives):
            if any([isinstance(item, tuple) for item in alternative]):
                continue
            missing[r, a] = len(alternative)
            for item in alternative:
                users[item].append((r, a))
            if not alternative:
                waiting.append(r)
    while waiting:
        rule = waiting.pop()
        if rule in found:
            continue
        found.add(rule)
        for user in users[rule]:
            missing[user] -= 1
            if missing[user] == 0:
                waiting.append(user[0])
    return found


cdef list _components(list edges):
    """Number of the strongly connected component of each rule (Tarjan 1972, without recursion)."""
    cdef list index = [0] * len(edges), low = [0] * len(edges), component = [-1] * len(edges), stack = [], path
    cdef int count = 0, n_components = 0
    for root in range(len(edges)):
        if index[root]:
            continue
        path = [(root, iter(edges[root]))]
        count += 1
        index[root] = low[root] = count
        stack.append(root)
        while path:
            rule, targets = path[-1]
            for target in targets:
                if not index[target]:
                    count += 1
                    index[target] = low[target] = count
                    stack.append(target)
                    path.append((target, iter(edges[target])))
                    break
                if component[target] < 0:
                    low[rule] = min(low[rule], index[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[rule])
                if low[rule] == index[rule]:
                    while True:
                        member = stack.pop()
                        component[member] = n_components
                        if member == rule:
                            break
                    n_components += 1
    return component


cdef int _refuse_left_recursion(list rules, tuple names) except -1:
    """A rule that calls itself before it has read a character would be called for ever.

    Repeating what may be empty, as in ("a"?)*, is such a call too, but the last thing its rule does, after something
    empty. It leads back to where it was, adds nothing, and is allowed.
    """
    cdef set nullable = _nullable(rules)
    cdef list edges = [], harmful = [], component
    for r, alternatives in enumerate(rules):
        targets = set()
        for alternative in alternatives:
            for i, item in enumerate(alternative):
                if isinstance(item, tuple):
                    break
                targets.add(item)
                if i == 0 or i + 1 < len(alternative):
                    harmful.append((r, item))
                if item not in nullable:
                    break
        edges.append(targets)
    component = _components(edges)
    for rule, target in harmful:
        if component[rule] == component[target]:
            raise ParamsError(f"{names[rule]} is left-recursive: it comes back to itself before it reads a character")
    return 0


cdef class Grammar:
    """Rules for a text. Immutable, shared by threads; made by `from_gbnf` or `from_rules`."""

    def __init__(self) -> None:
        raise TypeError("make a grammar with Grammar.from_gbnf or Grammar.from_rules")

    @staticmethod
    def from_gbnf(str text not None, str root="root") -> Grammar:
        """Read a grammar in GBNF notation.

        Parameters
        ----------
        text
            Rules `name ::= …`; see `whispyx._core.gbnf`.
        root
            The rule that a whole text follows.

        Raises
        ------
        ParamsError
            The text is no grammar (the message says in which line and column), a rule is missing or left-recursive.
        """
        rules, symbols = parse(text)
        if root not in symbols:
            raise ParamsError(f"the grammar has no rule {root!r}")
        return _make(rules, symbols[root], tuple([f"rule {name!r}" for name in symbols]))

    @staticmethod
    def from_rules(rules, int start=0) -> Grammar:
        """Take a grammar as whisper.h has it.

        Parameters
        ----------
        rules
            By rule: its elements as (type, value), types as `whisper_gretype`, the last one END.
        start
            Number of the rule that a whole text follows.

        Raises
        ------
        ParamsError
            Elements in a wrong order or with a wrong value, a missing or a left-recursive rule.
        """
        try:
            rules = [list(rule) for rule in rules]
        except TypeError:
            raise ParamsError("rules are lists of (type, value) pairs") from None
        if not 0 <= start < len(rules):
            raise ParamsError(f"there is no start rule {start}, only {len(rules)} rules")
        return _make(rules, start, tuple([f"rule {i}" for i in range(len(rules))]))

    cpdef GrammarState start(self, Vocab vocab):
        """Return the state before the first token. It and its copies belong to one thread."""
        if vocab is None:
            raise TypeError("a vocabulary is needed")
        cdef GrammarState state = GrammarState.__new__(GrammarState)
        state.vocab, state.machine = vocab, Machine(self.program, trie_of(vocab))
        state.state = state.machine.start
        return state

    def __repr__(self) -> str:
        return f"<Grammar of {len(self.names)} rules>"


cdef Grammar _make(list rules, int start, tuple names):
    cdef Grammar grammar = Grammar.__new__(Grammar)
    cdef list compiled = [_alternatives(name, rule, len(rules)) for name, rule in zip(names, rules)]
    _refuse_left_recursion(compiled, names)
    grammar.program, grammar.names = Program(compiled, start), names
    return grammar


cdef class GrammarState:
    """How far a text has come in a grammar.

    `started`: a text token was accepted. `open`: no timestamp has come since the last one. `unmatched`: the text has
    left the grammar; from then on every text token is rejected.
    """

    def __init__(self) -> None:
        raise TypeError("make a state with Grammar.start")

    cdef int _check(self) except -1:
        if self.machine is None:
            raise TypeError("the state was not made by Grammar.start")
        return 0

    cdef bint is_complete(self) noexcept nogil:
        return self.begun.remain == 0 and self.machine.completes(self.state)

    @property
    def ended(self) -> bool:
        """Whether the text so far is a whole one, so that it may end."""
        self._check()
        return self.is_complete()

    cdef int penalise(self, float * row, float penalty) except -1 nogil:
        """Subtract the penalty from the logits of the text tokens that may not come next.

        The end-of-text token gets it too right behind a text that is not whole. Timestamps never do, and where one has
        closed what was said, the text may end.

        Raises
        ------
        ParamsError
            The grammar is too ambiguous to follow this text.
        """
        cdef long long place = self.machine.rejects(self.state, &self.begun), i
        cdef const int * order = self.machine.trie.order.data()
        cdef Range lost
        cdef int k
        for i in range(self.machine.known_first[place], self.machine.known_last[place]):
            lost = self.machine.ranges[i]
            for k in range(lost.first, lost.last):
                row[order[k]] -= penalty
        if self.open and not self.unmatched and not self.is_complete():
            row[self.vocab.eot] -= penalty
        return 0

    cpdef int accept(self, int token) except -1:
        """Go on by a sampled token. Other tokens than text do not move the place in the grammar.

        Raises
        ------
        ParamsError
            No such token, or the grammar is too ambiguous to follow this text.
        """
        cdef bytes text
        cdef const unsigned char * at
        cdef Py_ssize_t i
        cdef int fed, state = self.state
        cdef Utf8 begun = self.begun
        self._check()
        text = self.vocab.text(token)
        at = text
        if self.vocab.is_time(token):
            self.open = False
        if not self.vocab.is_text(token) or token >= self.vocab.n_stored or len(text) == 0:
            return 0
        for i in range(len(text)):
            fed = feed(&begun, at[i])
            if fed == COMPLETE:
                state = self.machine.step(state, begun.value)
            elif fed == BROKEN:
                state = DEAD
                break
        if begun.remain > 0 and not self.machine.may_take(state, &begun):
            state = DEAD
        if state == DEAD:
            begun.remain = 0
        self.state, self.begun, self.unmatched = state, begun, state == DEAD
        self.started = self.open = True
        return 0

    cpdef GrammarState copy(self):
        """Return a state that goes on by itself. What is known about the grammar is shared."""
        cdef GrammarState other = GrammarState.__new__(GrammarState)
        other.vocab, other.machine, other.state, other.begun = self.vocab, self.machine, self.state, self.begun
        other.started, other.open, other.unmatched = self.started, self.open, self.unmatched
        return other

    cpdef GrammarState restart(self):
        """Return a state before the first token, for the next text; cheaper than `Grammar.start`."""
        cdef GrammarState other = GrammarState.__new__(GrammarState)
        self._check()
        other.vocab, other.machine = self.vocab, self.machine
        if other.machine.memory() > FRESH_START:
            other.machine = Machine(self.machine.program, self.machine.trie)
        other.state = other.machine.start
        return other

    def penalise_row(self, row, float penalty) -> None:
        """As the core's `penalise`, on a writable float32 array (n_vocab,)."""
        cdef float[::1] view = row
        self._check()
        if view.shape[0] != self.vocab.n_vocab:
            raise ParamsError(f"{view.shape[0]} logits, but the vocabulary has {self.vocab.n_vocab} tokens")
        with nogil:
            self.penalise(&view[0], penalty)

    def rejected(self) -> list[int]:
        """Return the text tokens that may not come next, and eot where the text may not end."""
        self._check()
        row = np.zeros(self.vocab.n_vocab, np.float32)
        self.penalise_row(row, 1.0)
        return np.flatnonzero(row).tolist()
