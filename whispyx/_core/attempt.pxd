from whispyx._core.beam cimport BeamSearch
from whispyx._core.logits cimport LogitRules
from whispyx._core.params cimport FullParams
from whispyx._core.sequence cimport Decoder, EndRules
from whispyx._core.state cimport State


cdef class Attempt:
    cdef FullParams params
    cdef BeamSearch beam            # None: greedy
    cdef bint beams                 # whether this attempt is a beam search
    cdef list decoders              # all that any attempt may need
    cdef LogitRules rules
    cdef object grammar         # GrammarState before the first token, or None; knows what earlier windows found out
    cdef EndRules ends
    cdef int first                  # sequence of the first decoder
    cdef int n_vocab, nosp
    cdef int n_active, n_prompt, i_step
    cdef int n_rows                 # of logits that the prompt wants
    cdef float temperature, no_speech_prob
    cdef Decoder best
    cdef list kept                  # prompt that is in the cache as the sequence `keeper`, None: none
    cdef object kept_row            # its last row of logits
    cdef long long kept_at          # the state's count of lost caches when it was put there
    cdef int keeper                 # -1: prompts are not kept
    cdef int begin(self, State state, float temperature) except -1
    cdef void forget(self) noexcept
    cdef int fill_prompt(self, State state, list prompt, int n_init) except -1
    cdef int take_prompt(self, State state, int row) except -1
    cdef int fill_step(self, State state) except -1
    cdef int take_step(self, State state, int row) except -1
    cdef bint rank(self, State state) except -1
    cdef int _spread(self, State state) except -1
    cdef bint _recall(self, State state, list prompt) except -1
