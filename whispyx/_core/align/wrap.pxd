from whispyx._core.results cimport SegmentData
from whispyx._core.vocab cimport Vocab

cpdef list wrap(SegmentData segment, int max_len, bint split_on_word, Vocab vocab)
