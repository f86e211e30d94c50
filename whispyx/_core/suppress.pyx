# distutils: language = c++
"""Text tokens that a regular expression forbids (`suppress_regex`).

The pattern is read once, and the tokens that match are found once per run: they depend on the text only where a token
gave the first bytes of a character that the next token goes on with. Then the whole character counts.
"""

import codecs
import time

from libc.math cimport INFINITY

from whispyx._core.automaton cimport DEAD, Machine, Program
from whispyx._core.sequence cimport Token
from whispyx._core.trie cimport BROKEN, COMPLETE, MORE, Utf8, VocabTrie, feed, reach, trie_of
from whispyx._core.vocab cimport Vocab

from whispyx._core.regex import compile_pattern
from whispyx.errors import ParamsError

cdef enum:
    REPLACEMENT = 0xFFFD        # stands for bytes that are no UTF-8
    LAST_BEFORE_SURROGATES = 0xD7FF
    MAX_PLACES = 64             # begun characters whose tokens are kept

TIME_LIMIT = 5.0                # seconds that `re` may take for a vocabulary


cdef bytes pending_of(Vocab vocab, const Token * tokens, int n_tokens, Utf8 * begun):
    """Return the first bytes of a character that the text so far ends with, mostly none."""
    cdef bytes tail = b""
    cdef int i, k, fed
    while n_tokens > 0 and len(tail) < 3 and vocab.is_text(tokens[n_tokens - 1].id):
        n_tokens -= 1
        tail = vocab.text(tokens[n_tokens].id) + tail
    for k in range(1, min(3, <int>len(tail)) + 1):
        begun.remain = 0
        fed = BROKEN
        for i in range(<int>len(tail) - k, <int>len(tail)):
            fed = feed(begun, <unsigned char>tail[i])
            if fed != MORE:
                break
        if fed == MORE:
            return tail[len(tail) - k:]
    begun.remain = 0
    return b""


cdef class RegexSuppressor:
    """The tokens that a pattern suppresses.

    Parameters
    ----------
    vocab
        The model's vocabulary. Only text tokens are ever suppressed.
    pattern
        See `whispyx._core.regex`. The empty one suppresses nothing.
    search
        False: a token is suppressed when the pattern matches all of its text. True: any part of it.

    A token's text begins with the character that the token before it began, and is judged without its last character
    where it only begins it: then it is suppressed when the pattern matches whatever that character becomes.

    Raises
    ------
    ParamsError
        The pattern is wrong, or takes too long.
    """

    def __init__(self, Vocab vocab not None, str pattern not None, bint search) -> None:
        cdef Utf8 nothing
        if self.vocab is not None:
            raise TypeError("the suppressor is made already")
        self.places = {}
        self.trie = trie_of(vocab)
        self.base.assign(self.trie.n_tokens, False)
        nothing.remain = nothing.value = nothing.low = 0
        if pattern:
            rules, compiled = compile_pattern(pattern, search)
            if rules is not None:
                self.machine = Machine(Program(rules, 0), self.trie)
            else:
                self.matches = compiled.search if search else compiled.fullmatch
        self.vocab = vocab
        self.verdict = self.base
        if pattern:
            self._judge(0, self.trie.n_nodes, &nothing, b"")
        self.base = self.verdict
        self._keep()

    cdef int _keep(self) except -1:
        """Make a list of ids of the verdicts."""
        cdef vector[int] found
        cdef int k
        for k in range(self.trie.n_tokens):
            if self.verdict[k]:
                found.push_back(self.trie.order[k])
        self.ids.push_back(found)
        return 0

    cdef int apply(self, const Token * tokens, int n_tokens, float * row) except -1:
        """Set the logits of the suppressed tokens to minus infinity.

        Parameters
        ----------
        tokens, n_tokens
            The tokens sampled so far.
        row
            Logits (n_vocab,).
        """
        cdef Utf8 begun
        cdef int place = 0, i
        cdef bytes pending = pending_of(self.vocab, tokens, n_tokens, &begun)
        cdef const int * ids
        if pending:
            place = self._place(&begun, pending)
        ids = self.ids[place].data()
        for i in range(<int>self.ids[place].size()):
            row[ids[i]] = -INFINITY
        return 0

    cdef int _place(self, const Utf8 * begun, bytes pending) except -1:
        cdef int node = 0, k
        cdef Utf8 now
        if self.machine is None and self.matches is None:
            return 0
        place = self.places.get(pending)
        if place is not None:
            return place
        if self.ids.size() > MAX_PLACES:
            self.ids.resize(1)
            self.places.clear()
        self.verdict = self.base
        while node < self.trie.n_nodes:
            now = begun[0]
            if feed(&now, self.trie.byte[node]) != BROKEN:
                for k in range(self.trie.first[node], self.trie.first[self.trie.after[node]]):
                    self.verdict[k] = False
                self._judge(node, self.trie.after[node], begun, pending)
            node = self.trie.after[node]
        self._keep()
        self.places[pending] = <int>self.ids.size() - 1
        return <int>self.ids.size() - 1

    cdef int _judge(self, int node, int last, const Utf8 * begun, bytes pending) except -1:
        """Find which tokens of the nodes node … last - 1 match after a begun character."""
        cdef int k
        if self.machine is not None:
            with nogil:
                self._walk(node, last, begun)
            return 0
        latest = time.monotonic() + TIME_LIMIT
        for k in range(self.trie.first[node], self.trie.first[last]):
            self.verdict[k] = self._matches(pending + self.vocab.text(self.trie.order[k]))
            if time.monotonic() > latest:
                raise ParamsError("suppress_regex takes too long to compare with the vocabulary")
        return 0

    def _matches(self, bytes raw) -> bool:
        """Whether `re` finds the pattern in bytes, and whatever the character becomes that they end in."""
        cdef Utf8 begun
        cdef unsigned int low, high, c
        text, n_read = codecs.utf_8_decode(raw, "replace", False)
        if n_read == len(raw):
            return self.matches(text) is not None
        begun.remain = 0
        for byte in raw[n_read:]:
            feed(&begun, byte)
        reach(&begun, &low, &high)
        if low <= LAST_BEFORE_SURROGATES < high:
            high = LAST_BEFORE_SURROGATES
        # Where two bytes or more are missing there are many: one of each 64 is tried.
        for c in range(low, high + 1, 64 if begun.remain > 1 else 1):
            if self.matches(text + chr(c)) is None:
                return False
        return True

    cdef int _walk(self, int node, int last, const Utf8 * begun) except -1 nogil:
        cdef int depth, state, fed, i, start = self.trie.depth[node] - 1
        cdef char verdict
        cdef Utf8 now
        self.machine.path_state[start], self.machine.path_utf8[start] = self.machine.start, begun[0]
        while node < last:
            depth = self.trie.depth[node]
            state, now = self.machine.path_state[depth - 1], self.machine.path_utf8[depth - 1]
            fed = feed(&now, self.trie.byte[node])
            if fed == BROKEN:
                state = self.machine.step(state, REPLACEMENT)
                if self.machine.path_utf8[depth - 1].remain > 0:        # the byte may begin another one
                    now.remain = 0
                    fed = feed(&now, self.trie.byte[node])
                    if fed == BROKEN:
                        state = self.machine.step(state, REPLACEMENT)
            if fed == COMPLETE:
                state = self.machine.step(state, now.value)
            if state == DEAD:
                node = self.trie.after[node]        # what lies below was set to False before
                continue
            self.machine.path_state[depth], self.machine.path_utf8[depth] = state, now
            if self.trie.first[node] < self.trie.ends[node]:
                verdict = (self._every_completion(state, &now) if now.remain > 0 else self.machine.completes(state))
                for i in range(self.trie.first[node], self.trie.ends[node]):
                    self.verdict[i] = verdict
            node += 1
        return 0

    cdef int _every_completion(self, int state, const Utf8 * begun) except -1 nogil:
        """Whether the text is a match with every character that begins like this."""
        cdef unsigned int low, high
        cdef int c
        reach(begun, &low, &high)
        if low <= LAST_BEFORE_SURROGATES < high:
            high = LAST_BEFORE_SURROGATES
        for c in range(self.machine.program.class_of(low), self.machine.program.class_of(high) + 1):
            if not self.machine.completes(self.machine.next(state, c)):
                return False
        return True

    def suppressed(self, tokens=()) -> list[int]:
        """Return the tokens that may not follow the given ones, in order."""
        cdef vector[Token] so_far
        cdef Token token
        cdef Utf8 begun
        cdef bytes pending
        if self.vocab is None:
            raise TypeError("the suppressor was never made")
        for token.id in tokens:
            self.vocab.text(token.id)       # checks it
            so_far.push_back(token)
        pending = pending_of(self.vocab, so_far.data(), <int>so_far.size(), &begun)
        return sorted(self.ids[self._place(&begun, pending) if pending else 0])
