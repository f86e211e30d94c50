from whispyx._core.align.fit cimport Loudness

cdef int time_words(list segments, int eot, const double * cost, int n_rows, int n_positions, int seek,
                    Loudness loudness, int lag) except -1
