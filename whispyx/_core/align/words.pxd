from whispyx._core.align.fit cimport Loudness
from whispyx._core.vocab cimport Vocab

cdef int time_words(list segments, Vocab vocab, const double * cost, int n_rows, int n_positions, int seek,
                    Loudness loudness, int lag) except -1
