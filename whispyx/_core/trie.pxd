from libcpp.vector cimport vector

from whispyx._core.vocab cimport Vocab


cdef struct Utf8:
    # A character of which `remain` bytes are still to come; remain 0: none is begun.
    unsigned int value          # bits read so far, or the whole character once it is complete
    unsigned int low            # least value that a sequence of this length may have
    int remain

cdef enum Fed:
    BROKEN = -1                 # no UTF-8
    MORE = 0
    COMPLETE = 1

cdef Fed feed(Utf8 * at, unsigned char byte) noexcept nogil
cdef void reach(const Utf8 * at, unsigned int * low, unsigned int * high) noexcept nogil


cdef class VocabTrie:
    cdef readonly int n_nodes, n_tokens, max_depth
    # Nodes in preorder, the root left out. Node i covers order[first[i]] … order[first[after[i]] - 1], of which those
    # before order[ends[i]] end at it; after[i] is the next node that does not lie below it.
    cdef vector[unsigned char] byte
    cdef vector[int] depth, after, first, ends
    cdef vector[int] order      # text tokens, sorted by their bytes


cdef VocabTrie trie_of(Vocab vocab)
