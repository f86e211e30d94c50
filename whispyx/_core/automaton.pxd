from libcpp.vector cimport vector

from whispyx._core.trie cimport Utf8, VocabTrie


cdef struct Range:
    int first, last             # places in VocabTrie.order, the last one not included


cdef class Program:
    # A position is what is to come next in an alternative: a character class or a call of a rule. Position 0 is the
    # end of an alternative.
    cdef readonly int n_rules, n_classes
    cdef vector[int] kind       # by position: the character class (0 …), or -1 - rule
    cdef vector[int] after      # by position: the one that follows
    cdef vector[int] rule_first, start          # alternatives of rule r: start[rule_first[r]] …, before rule_first[r+1]
    cdef vector[unsigned int] breaks            # by class of characters: its first one
    cdef int ascii[128]
    cdef vector[int] set_first, set_low, set_high       # class set s: classes low … high of each of its pieces
    cdef int start_rule
    cdef int _search(self, unsigned int character) noexcept nogil
    cdef int class_of(self, unsigned int character) noexcept nogil
    cdef bint has(self, int class_set, int low, int high) noexcept nogil


cdef enum:
    DEAD = 0                    # the state from which nothing matches


cdef class Machine:
    cdef readonly Program program
    cdef readonly VocabTrie trie
    cdef readonly int start
    # Stacks as nodes: what comes next, and the node below (-1: none). Equal stacks are one node; node 0 is the empty
    # stack, which is the end of the text.
    cdef vector[int] node_at, node_below, node_table
    cdef vector[long long] node_mark
    cdef long long mark
    # States are sorted sets of nodes; equal sets are one state.
    cdef vector[int] pool, set_table
    cdef vector[long long] set_first
    cdef vector[long long] row              # by state: where its transitions begin; -1: not kept
    cdef vector[int] transitions            # by class; -1: not known yet
    cdef vector[int] found, work_at, work_below
    # Rejected tokens, by state and character in progress.
    cdef vector[unsigned long long] known
    cdef vector[long long] known_first, known_last
    cdef vector[int] known_table
    cdef vector[Range] ranges
    cdef vector[int] path_state
    cdef vector[Utf8] path_utf8
    cdef long long memory(self) noexcept nogil
    cdef int close(self, int at, int below) except -1 nogil
    cdef int next(self, int state, int character_class) except -1 nogil
    cdef int step(self, int state, unsigned int character) except -1 nogil
    cdef bint completes(self, int state) noexcept nogil
    cdef bint may_take(self, int state, const Utf8 * at) noexcept nogil
    cdef long long rejects(self, int state, const Utf8 * at) except -1 nogil
    cdef int _open(self, int rule, int below) except -1 nogil
    cdef unsigned long long _hash(self, const int * nodes, size_t n) noexcept nogil
    cdef int _node(self, int at, int below) except -1 nogil
    cdef int _add_state(self) except -1 nogil
    cdef int _walk(self, int state, const Utf8 * at) except -1 nogil
