from whispyx._core.results cimport Timings, WindowData
from whispyx._core.sequence cimport Decoder
from whispyx._core.state cimport State
from whispyx._core.vocab cimport Vocab

cdef WindowData window_of(Decoder best, Vocab vocab, int seek, int seek_end, float temperature, float no_speech_prob,
                          bint silent)
cdef Timings timings_of(State state, long long started_us)
