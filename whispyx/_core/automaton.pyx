# distutils: language = c++
"""Context-free rules over characters, followed without recursion: stacks are shared nodes, sets of stacks are states.

All ways to read a text are followed at once, each as a stack of what is still to come (a push-down automaton made
deterministic as far as a text needs it). Equal stacks are one node and equal sets of stacks one state, so what was
found out about a state, such as the tokens it rejects, is found out once. Everything has a limit: rules that grow
without bound end with `ParamsError`, not with the machine's memory.
"""

from libcpp.algorithm cimport sort
from libcpp.vector cimport vector

from whispyx._core.trie cimport BROKEN, COMPLETE, Utf8, VocabTrie, feed, reach

from whispyx.errors import ParamsError

cdef enum:
    LAST_CHARACTER = 0x10FFFF
    MAX_POSITIONS = 4000000
    MAX_NODES = 2000000         # about a second's work
    MAX_POOL = 16000000         # stacks in all states together: 64 MB
    MAX_TRANSITIONS = 16000000  # further ones are worked out each time
    MAX_RANGES = 4000000        # of rejected tokens; then all are forgotten


cdef class Program:
    """Rules in the form that a `Machine` follows.

    Parameters
    ----------
    rules
        By rule: its alternatives; an alternative is a list of items; an item is the number of a rule, or a tuple of
        (first, last) ranges of characters, sorted and apart from each other.
    start
        The rule that a whole text follows.
    """

    def __init__(self, list rules not None, int start) -> None:
        cdef dict number = {}           # class set -> its number
        cdef list alternative
        cdef vector[int] steps
        cdef int i, at, n_items
        if self.n_rules:
            raise TypeError("the program is made already")
        self.n_rules, self.start_rule = len(rules), start
        self.kind.push_back(0)
        self.after.push_back(0)
        for alternatives in rules:
            self.rule_first.push_back(<int>self.start.size())
            for alternative in alternatives:
                n_items = len(alternative)
                if <long long>self.kind.size() + n_items > MAX_POSITIONS:
                    raise ParamsError(f"the rules are too long: more than {int(MAX_POSITIONS)} characters and calls")
                self.start.push_back(<int>self.kind.size() if n_items else 0)
                for i, item in enumerate(alternative):
                    if isinstance(item, tuple):
                        self.kind.push_back(number.setdefault(item, len(number)))
                    else:
                        self.kind.push_back(-1 - <int>item)
                    at = <int>self.kind.size()
                    self.after.push_back(at if i + 1 < n_items else 0)
        self.rule_first.push_back(<int>self.start.size())
        self._number_classes(list(number))

    def _number_classes(self, list sets) -> None:
        """Characters that no rule tells apart are one class; the machine only sees classes."""
        cdef int i
        edges = {0}
        for ranges in sets:
            for low, high in ranges:
                edges.add(low)
                edges.add(high + 1)
        edges.discard(LAST_CHARACTER + 1)
        for edge in sorted(edges):
            self.breaks.push_back(edge)
        self.n_classes = <int>self.breaks.size()
        for i in range(128):
            self.ascii[i] = self._search(i)
        for ranges in sets:
            self.set_first.push_back(<int>self.set_low.size())
            for low, high in ranges:
                self.set_low.push_back(self._search(low))
                self.set_high.push_back(self._search(high))
        self.set_first.push_back(<int>self.set_low.size())

    cdef int _search(self, unsigned int character) noexcept nogil:
        cdef int low = 0, high = <int>self.breaks.size() - 1, middle
        while low < high:
            middle = (low + high + 1) // 2
            if self.breaks[middle] <= character:
                low = middle
            else:
                high = middle - 1
        return low

    cdef int class_of(self, unsigned int character) noexcept nogil:
        return self.ascii[character] if character < 128 else self._search(character)

    cdef bint has(self, int class_set, int low, int high) noexcept nogil:
        """Whether a set holds any of the classes low … high."""
        cdef int first = self.set_first[class_set], last = self.set_first[class_set + 1] - 1, middle
        while first < last:             # the first piece that does not end before `low`
            middle = (first + last) // 2
            if self.set_high[middle] < low:
                first = middle + 1
            else:
                last = middle
        return first == last and self.set_high[first] >= low and self.set_low[first] <= high


cdef inline unsigned long long mix(unsigned long long key) noexcept nogil:
    # Finaliser of splitmix64 (Steele, Lea & Flood 2014).
    key = (key ^ (key >> 30)) * <unsigned long long>0xBF58476D1CE4E5B9
    key = (key ^ (key >> 27)) * <unsigned long long>0x94D049BB133111EB
    return key ^ (key >> 31)


cdef class Machine:
    """The states that texts reach by a program, and the tokens of a vocabulary that each state rejects.

    Not for use by several threads at a time. Everything but the program and the tree is a cache that grows; `memory`
    says how far.

    Raises
    ------
    ParamsError
        The rules allow no text, or a limit was reached.
    """

    def __init__(self, Program program not None, VocabTrie trie not None) -> None:
        if self.program is not None:
            raise TypeError("the machine is made already")
        self.program, self.trie = program, trie
        self.node_table.assign(1 << 10, -1)
        self.set_table.assign(1 << 10, -1)
        self.known_table.assign(1 << 10, -1)
        self.set_first.push_back(0)
        self.path_state.resize(trie.max_depth + 1)
        self.path_utf8.resize(trie.max_depth + 1)
        self._node(0, -1)
        self._add_state()                       # DEAD: no stacks
        self.mark += 1
        self._open(program.start_rule, -1)
        self.start = self._add_state()

    cdef long long memory(self) noexcept nogil:
        """Bytes that the caches take, about."""
        return 16 * <long long>self.node_at.size() + 4 * <long long>(self.pool.size() + self.transitions.size()) \
            + 8 * <long long>self.ranges.size()

    cdef int _node(self, int at, int below) except -1 nogil:
        cdef size_t i, size = self.node_table.size(), slot
        cdef int node
        slot = mix(<unsigned long long>at << 32 | <unsigned int>below) & (size - 1)
        while self.node_table[slot] >= 0:
            node = self.node_table[slot]
            if self.node_at[node] == at and self.node_below[node] == below:
                return node
            slot = (slot + 1) & (size - 1)
        node = <int>self.node_at.size()
        if node >= MAX_NODES:
            with gil:
                raise ParamsError("the grammar or pattern is too ambiguous: there are too many ways to read a text")
        self.node_at.push_back(at)
        self.node_below.push_back(below)
        self.node_mark.push_back(0)
        self.node_table[slot] = node
        if 2 * self.node_at.size() > size:
            size *= 2
            self.node_table.assign(size, -1)
            for i in range(self.node_at.size()):
                slot = mix(<unsigned long long>self.node_at[i] << 32 | <unsigned int>self.node_below[i]) & (size - 1)
                while self.node_table[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
                self.node_table[slot] = <int>i
        return node

    cdef int _open(self, int rule, int below) except -1 nogil:
        """Go on with every alternative of a rule."""
        cdef int i
        for i in range(self.program.rule_first[rule], self.program.rule_first[rule + 1]):
            self.close(self.program.start[i], below)
        return 0

    cdef int close(self, int at, int below) except -1 nogil:
        """Add to `found` the stacks with a character class on top that (at, below) leads to without a character."""
        cdef int node, rule, rest, i
        self.work_at.push_back(at)
        self.work_below.push_back(below)
        while self.work_at.size() > 0:
            at, below = self.work_at.back(), self.work_below.back()
            self.work_at.pop_back()
            self.work_below.pop_back()
            if at == 0 and below >= 0:
                at, below = self.node_at[below], self.node_below[below]     # the alternative is over: return
            node = self._node(at, below)
            if self.node_mark[node] == self.mark:
                continue
            self.node_mark[node] = self.mark
            if at == 0 or self.program.kind[at] >= 0:
                self.found.push_back(node)
                continue
            rule = -1 - self.program.kind[at]
            rest = self.program.after[at]
            if rest != 0:
                below = self._node(rest, below)     # nothing to come back to after the last item: no entry
            for i in range(self.program.rule_first[rule], self.program.rule_first[rule + 1]):
                self.work_at.push_back(self.program.start[i])
                self.work_below.push_back(below)
        return 0

    cdef unsigned long long _hash(self, const int * nodes, size_t n) noexcept nogil:
        cdef unsigned long long value = n
        cdef size_t i
        for i in range(n):
            value = mix(value * 31 + <unsigned long long>nodes[i] + 1)
        return value

    cdef int _add_state(self) except -1 nogil:
        """Return the state of the stacks in `found`, which is emptied."""
        cdef size_t n, size = self.set_table.size(), slot, i
        cdef long long first
        cdef int state
        sort(self.found.begin(), self.found.end())
        n = self.found.size()
        slot = self._hash(self.found.data(), n) & (size - 1)
        while self.set_table[slot] >= 0:
            state = self.set_table[slot]
            first = self.set_first[state]
            if <size_t>(self.set_first[state + 1] - first) == n:
                i = 0
                while i < n and self.pool[first + i] == self.found[i]:
                    i += 1
                if i == n:
                    self.found.clear()
                    return state
            slot = (slot + 1) & (size - 1)
        if self.pool.size() + n > MAX_POOL:
            with gil:
                raise ParamsError("the grammar or pattern is too ambiguous: there are too many ways to read a text")
        state = <int>self.set_first.size() - 1
        self.pool.insert(self.pool.end(), self.found.begin(), self.found.end())
        self.found.clear()
        self.set_first.push_back(<long long>self.pool.size())
        self.row.push_back(-1)
        self.set_table[slot] = state
        if 2 * self.set_first.size() > size:
            size *= 2
            self.set_table.assign(size, -1)
            for i in range(<size_t>state + 1):
                n = <size_t>(self.set_first[i + 1] - self.set_first[i])
                slot = self._hash(self.pool.data() + self.set_first[i], n) & (size - 1)
                while self.set_table[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
                self.set_table[slot] = <int>i
        return state

    cdef int next(self, int state, int character_class) except -1 nogil:
        """Return the state after a character of a class."""
        cdef long long first, i, row = self.row[state]
        cdef int node, at, to
        if row >= 0 and self.transitions[row + character_class] >= 0:
            return self.transitions[row + character_class]
        self.mark += 1
        self.found.clear()          # something is left there only when a limit was reached
        self.work_at.clear()
        self.work_below.clear()
        first = self.set_first[state]
        for i in range(first, self.set_first[state + 1]):
            node = self.pool[i]
            at = self.node_at[node]
            if at != 0 and self.program.has(self.program.kind[at], character_class, character_class):
                self.close(self.program.after[at], self.node_below[node])
        to = self._add_state()
        if row < 0 and <long long>self.transitions.size() + self.program.n_classes <= MAX_TRANSITIONS:
            row = self.row[state] = <long long>self.transitions.size()
            self.transitions.resize(self.transitions.size() + self.program.n_classes, -1)
        if row >= 0:
            self.transitions[row + character_class] = to
        return to

    cdef int step(self, int state, unsigned int character) except -1 nogil:
        return self.next(state, self.program.class_of(character))

    cdef bint completes(self, int state) noexcept nogil:
        """Whether a text may end here; the empty stack is node 0, so it comes first."""
        cdef long long first = self.set_first[state]
        return first < self.set_first[state + 1] and self.pool[first] == 0

    cdef bint may_take(self, int state, const Utf8 * at) noexcept nogil:
        """Whether any way to go on takes a character that begins with these bytes."""
        cdef unsigned int low, high
        cdef int first, last, position
        cdef long long i
        reach(at, &low, &high)
        first, last = self.program.class_of(low), self.program.class_of(high)
        for i in range(self.set_first[state], self.set_first[state + 1]):
            position = self.node_at[self.pool[i]]
            if position != 0 and self.program.has(self.program.kind[position], first, last):
                return True
        return False

    cdef long long rejects(self, int state, const Utf8 * at) except -1 nogil:
        """Return the place in `known_first`, `known_last` of the ranges of tokens that may not follow a state.

        `at` is the character in progress. A token is rejected when its characters cannot follow, when the bytes at
        its end can become no character that could follow, and when it is no UTF-8.
        """
        cdef unsigned long long key
        cdef size_t i, size, slot
        # A begun character is told by its bits, how many bytes are missing and how long it is.
        key = <unsigned long long>state << 32
        if at.remain > 0:
            key |= (at.value << 5) | (<unsigned int>at.remain << 3)
            key |= 1 if at.low == 0x80 else 2 if at.low == 0x800 else 3
        size = self.known_table.size()
        slot = mix(key) & (size - 1)
        while self.known_table[slot] >= 0:
            if self.known[self.known_table[slot]] == key:
                return self.known_table[slot]
            slot = (slot + 1) & (size - 1)
        if self.ranges.size() > MAX_RANGES or 2 * (self.known.size() + 1) > size:
            if self.ranges.size() > MAX_RANGES:
                self.known.clear()
                self.known_first.clear()
                self.known_last.clear()
                self.ranges.clear()
            else:
                size *= 2
            self.known_table.assign(size, -1)
            for i in range(self.known.size()):
                slot = mix(self.known[i]) & (size - 1)
                while self.known_table[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
                self.known_table[slot] = <int>i
            slot = mix(key) & (size - 1)
            while self.known_table[slot] >= 0:
                slot = (slot + 1) & (size - 1)
        i = self.ranges.size()
        self._walk(state, at)
        self.known_table[slot] = <int>self.known.size()
        self.known.push_back(key)
        self.known_first.push_back(<long long>i)
        self.known_last.push_back(<long long>self.ranges.size())
        return <long long>self.known.size() - 1

    cdef int _walk(self, int state, const Utf8 * at) except -1 nogil:
        """Go through the tree and append to `ranges` what is rejected, neighbours joined."""
        cdef size_t begin = self.ranges.size()
        cdef int node = 0, depth, fed
        cdef Utf8 now
        cdef Range lost
        self.path_state[0], self.path_utf8[0] = state, at[0]
        while node < self.trie.n_nodes:
            depth = self.trie.depth[node]
            state, now = self.path_state[depth - 1], self.path_utf8[depth - 1]
            fed = feed(&now, self.trie.byte[node])
            if fed == COMPLETE:
                state = self.step(state, now.value)
            elif fed == BROKEN or not self.may_take(state, &now):
                state = DEAD
            if state != DEAD:
                self.path_state[depth], self.path_utf8[depth] = state, now
                node += 1
                continue
            lost.first, node = self.trie.first[node], self.trie.after[node]
            lost.last = self.trie.first[node]
            if self.ranges.size() > begin and self.ranges.back().last == lost.first:
                self.ranges.back().last = lost.last
            else:
                self.ranges.push_back(lost)
        return 0
