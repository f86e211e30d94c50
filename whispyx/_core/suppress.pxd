from libcpp.vector cimport vector

from whispyx._core.automaton cimport Machine
from whispyx._core.sequence cimport Token
from whispyx._core.trie cimport Utf8, VocabTrie
from whispyx._core.vocab cimport Vocab


cdef class RegexSuppressor:
    cdef Vocab vocab
    cdef VocabTrie trie
    cdef Machine machine                # None: `matches` decides
    cdef object matches
    cdef dict places                    # a begun character as a number -> its place in `ids`
    cdef vector[vector[int]] ids        # place 0: no character is begun
    cdef vector[char] base, verdict     # by place in VocabTrie.order: whether the token matches
    cdef int apply(self, const Token * tokens, int n_tokens, float * row) except -1
    cdef int _keep(self) except -1
    cdef int _place(self, const Utf8 * begun, bytes pending) except -1
    cdef int _judge(self, int node, int last, const Utf8 * begun, bytes pending) except -1
    cdef int _walk(self, int node, int last, const Utf8 * begun) except -1 nogil
    cdef int _every_completion(self, int state, const Utf8 * begun) except -1 nogil
