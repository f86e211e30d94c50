from whispyx._core.automaton cimport Machine, Program
from whispyx._core.trie cimport Utf8
from whispyx._core.vocab cimport Vocab


cdef class Grammar:
    cdef Program program
    cdef readonly tuple names           # of the rules, for messages
    cpdef GrammarState start(self, Vocab vocab)


cdef class GrammarState:
    cdef Vocab vocab
    cdef Machine machine
    cdef int state
    cdef Utf8 begun             # a character of which the last token gave only the first bytes
    cdef readonly bint started, open, unmatched
    cdef int penalise(self, float * row, float penalty) except -1 nogil
    cpdef int accept(self, int token) except -1
    cpdef GrammarState copy(self)
    cpdef GrammarState restart(self)
    cdef int _check(self) except -1
    cdef bint is_complete(self) noexcept nogil
