# distutils: language = c++
"""From a row of logits to the next token: what may not be said, when a timestamp must come, and the choice.

The order of the rules is whisper.cpp's (`whisper_process_logits`), which follows the reference decoding of
Radford et al. 2022; results depend on it.
"""

from libc.math cimport INFINITY, exp, log, lround
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

from whispyx._core.grammar cimport GrammarState
from whispyx._core.kernels cimport table, wx_scan
from whispyx._core.segments cimport record
from whispyx._core.sequence cimport Decoder, Token
from whispyx._core.suppress cimport RegexSuppressor
from whispyx._core.vecmath cimport arg_max, sum_exp, top_k
from whispyx._core.vocab cimport Vocab

from whispyx.constants import CHUNK_SIZE
from whispyx.errors import ComputeError

# Signs that are not speech; suppressed with and without a space in front when they are one token.
NON_SPEECH = (
    '"', "#", "(", ")", "*", "+", "/", ":", ";", "<", "=", ">", "@", "[", "\\", "]", "^", "_", "`", "{", "|", "}", "~",
    "「", "」", "『", "』", "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))",
    "[[", "]]", "{{", "}}", "♪♪", "♪♪♪", "♩", "♪", "♫", "♬", "♭", "♮", "♯",
)


def non_speech_tokens(Vocab vocab not None) -> list[int]:
    """Return the ids that `suppress_nst` suppresses."""
    texts = [space + sign for sign in NON_SPEECH for space in ("", " ")] + [" -", " '"]
    found = {vocab.find(text.encode()) for text in texts}
    return sorted(token for token in found if token >= 0)


cdef int * ids_of(list tokens, int * n) except NULL:
    """Copy token ids to an array that the caller frees."""
    cdef int * ids = <int *>malloc((len(tokens) + 1) * sizeof(int))
    cdef int i
    if ids == NULL:
        raise MemoryError
    for i in range(len(tokens)):
        ids[i] = tokens[i]
    n[0] = <int>len(tokens)
    return ids


cdef void add_words(const float * row, int n, int first, wx_scan * found) noexcept nogil:
    """Count n more tokens, which begin at id `first`, to the text. Few models have any."""
    cdef int arg
    cdef float top
    cdef double total
    if n == 0:
        return
    arg = arg_max(row, n)
    top = row[arg]
    if top == -INFINITY:
        return
    total = sum_exp(row, n, top)
    if top > found.text_top:
        found.text_top, found.text_arg = top, first + arg
    if found.top == -INFINITY:
        found.top, found.arg, found.total = top, first + arg, total
    elif top > found.top:
        found.total = found.total * exp(found.top - top) + total
        found.top, found.arg = top, first + arg
    else:
        found.total += total * exp(top - found.top)


cdef void scan(const float * row, int n, int beg, int end, wx_scan * found) noexcept nogil:
    """Largest value and sum of exponentials of a row, of its timestamps [beg, end) and of all else."""
    cdef double text
    cdef const float * behind = row + end
    if table() != NULL:
        table().scan(row, end, beg, found)
        add_words(behind, n - end, end, found)
        return
    found.text_arg = arg_max(row, beg)
    found.time_arg = beg + arg_max(row + beg, end - beg)
    found.text_top, found.time_top = row[found.text_arg], row[found.time_arg]
    found.arg = found.text_arg if found.text_top >= found.time_top else found.time_arg
    found.top = row[found.arg]
    text = sum_exp(row, beg, found.text_top) if found.text_top > -INFINITY else 0.0
    found.time_total = sum_exp(row + beg, end - beg, found.time_top) if found.time_top > -INFINITY else 0.0
    found.total = 0.0
    if found.top > -INFINITY:
        found.total = text * exp(found.text_top - found.top) + found.time_total * exp(found.time_top - found.top)
    elif not found.top == -INFINITY:
        found.total = found.top         # no number
    add_words(behind, n - end, end, found)


cdef class LogitRules:
    """The rules of one run, ready for every step.

    Parameters
    ----------
    vocab
        The model's vocabulary.
    n_audio_ctx
        Encoder positions of the model; sets how long one timestamp step is.
    params
        FullParams of the run.
    no_timestamps
        Whether timestamps are off, by parameter or by the model.
    listed, listed_first
        Ids that the model's files say are never to be written, or not at the start.
    """

    def __init__(self, Vocab vocab not None, int n_audio_ctx, params, bint no_timestamps, listed=(),
                 listed_first=()) -> None:
        cdef int i
        self.n_vocab, self.eot, self.beg, self.end = vocab.n_vocab, vocab.eot, vocab.beg, vocab.end
        self.n_audio_ctx = n_audio_ctx
        self.blank = vocab.find(b" ")
        self.suppress_blank = params.suppress_blank
        self.no_timestamps, self.single_segment = no_timestamps, params.single_segment
        self.max_tokens = params.max_tokens
        self.max_initial = -1
        if params.max_initial_ts > 0:
            step = CHUNK_SIZE / n_audio_ctx
            self.max_initial = min(self.end - 1, self.beg + <int>lround(params.max_initial_ts / step))
        self.vocab = vocab
        self.filter = params.logits_filter_callback
        self.regex = None
        if params.suppress_regex is not None:
            self.regex = RegexSuppressor(vocab, params.suppress_regex, params.suppress_regex_search)
        self.grammar_penalty = params.grammar_penalty
        # Of what lies between text and timestamps, only the mark of a speaker's turn is ever said.
        never = {*range(vocab.eot + 1, vocab.beg), *vocab.unused, *listed} - {vocab.eot}
        if params.tdrz_enable:
            never.discard(vocab.solm)
        self.always = ids_of(sorted(never), &self.n_always)
        self.first_listed = ids_of(sorted(listed_first) if params.suppress_blank else [], &self.n_first_listed)
        self.non_speech = ids_of(non_speech_tokens(vocab) if params.suppress_nst else [], &self.n_non_speech)

    def __dealloc__(self):
        free(self.always)
        free(self.first_listed)
        free(self.non_speech)

    cdef void _no_words(self, float * row, int last) noexcept nogil:
        """Forbid the tokens before `last`, and those behind the timestamps."""
        cdef int i
        for i in range(last):
            row[i] = -INFINITY
        for i in range(self.end, self.n_vocab):
            row[i] = -INFINITY

    cdef void _suppress_before(self, Decoder decoder, float * row) noexcept nogil:
        """What the model must never say, or not here: the rules in front of the caller's filter."""
        cdef int i, n = decoder.n_tokens
        if n == 0 and self.suppress_blank:
            row[self.eot] = -INFINITY
            if self.blank >= 0:
                row[self.blank] = -INFINITY
            for i in range(self.n_first_listed):
                row[self.first_listed[i]] = -INFINITY
        for i in range(self.n_always):
            row[self.always[i]] = -INFINITY
        if self.no_timestamps:
            for i in range(self.beg, self.end):
                row[i] = -INFINITY
        elif self.max_tokens > 0 and not self.single_segment and n >= self.max_tokens:
            self._no_words(row, self.eot)      # the window ends here: only a timestamp or the end may follow

    cdef int _filter(self, Decoder decoder, float * row) except -1:
        """Let the caller change the row. It gets a copy, which it may keep."""
        cdef size_t size = <size_t>self.n_vocab * sizeof(float)
        cdef float[::1] view
        values = np.empty(self.n_vocab, dtype=np.float32)
        view = values
        memcpy(&view[0], row, size)
        self.filter([record(&decoder.tokens[i], self.vocab) for i in range(decoder.n_tokens)], values)
        memcpy(row, &view[0], size)
        return 0

    cdef void _suppress_after(self, Decoder decoder, float * row) noexcept nogil:
        """Signs that are not speech, and the grammar of timestamps."""
        cdef int i, n = decoder.n_tokens, limit
        cdef bint last, penultimate
        for i in range(self.n_non_speech):
            row[self.non_speech[i]] = -INFINITY
        # Timestamps come in pairs, except right before the end.
        last = n > 0 and self.vocab.is_time(decoder.tokens[n - 1].id)
        penultimate = n < 2 or self.vocab.is_time(decoder.tokens[n - 2].id)
        if last and penultimate:
            for i in range(self.beg, self.end):
                row[i] = -INFINITY
        elif last:
            self._no_words(row, self.eot)
        if n == 0 and self.max_initial >= 0:
            for i in range(self.max_initial + 1, self.end):
                row[i] = -INFINITY
        if decoder.has_ts:
            limit = min(self.beg + decoder.seek_delta // 2, self.end)
            for i in range(self.beg, limit):
                row[i] = -INFINITY      # time does not go back

    cdef void _look(self, Decoder decoder, float * row) noexcept nogil:
        """Look over the row once. Where nothing may be said any more, the text ends."""
        scan(row, self.n_vocab, self.beg, self.end, &decoder.found)
        if decoder.found.top == -INFINITY:
            row[self.eot] = 0.0
            scan(row, self.n_vocab, self.beg, self.end, &decoder.found)
        decoder.log_z = decoder.found.top + log(decoder.found.total)

    cdef bint _time_wins(self, const wx_scan * found) noexcept nogil:
        """Whether all timestamps together are more probable than any one text token."""
        return found.time_top > -INFINITY and found.time_top + log(found.time_total) > found.text_top

    cdef int process(self, Decoder decoder, float * row, float temperature) except -1:
        """Apply the rules to a row in place and give it to the decoder."""
        cdef int i
        cdef bint time_wins
        with nogil:
            if temperature >= <float>1e-6:     # below, `sample` is greedy and a division could overflow
                for i in range(self.n_vocab):
                    row[i] /= temperature
            self._suppress_before(decoder, row)
        if self.filter is not None:
            self._filter(decoder, row)
        if self.regex is not None:
            (<RegexSuppressor>self.regex).apply(decoder.tokens, decoder.n_tokens, row)
        with nogil:
            self._suppress_after(decoder, row)
            self._look(decoder, row)
            time_wins = self._time_wins(&decoder.found)
            if time_wins:
                decoder.found.arg = decoder.found.time_arg
                self._no_words(row, self.beg)
        if decoder.grammar is not None and not time_wins:
            (<GrammarState>decoder.grammar).penalise(row, self.grammar_penalty)
            self._look(decoder, row)
        if not 0.0 < decoder.found.total < INFINITY:
            raise ComputeError("the decoder's logits are not usable: there are NaN or infinite ones")
        decoder.logits = row
        return 0

    cdef void _times(self, Decoder decoder, Token * token) noexcept nogil:
        """How probable timestamps are, and which one is the most probable."""
        cdef const wx_scan * found = &decoder.found
        cdef double p = 0.0, total = 0.0
        if found.time_top > -INFINITY:
            p = exp(found.time_top - decoder.log_z)
            total = p * found.time_total
        token.tid = found.time_arg if p > 0.0 else self.beg
        token.ptsum = <float>total
        token.pt = <float>(p / (total + 1e-10))

    cdef void _take(self, Decoder decoder, int id, Token * token) noexcept nogil:
        """Make `token`, whose times are known, the token `id`."""
        token.id = id
        token.plog = <float>(decoder.logits[id] - decoder.log_z)
        token.p = <float>exp(token.plog)
        if self.beg <= id < self.end:
            token.tid = id
            token.pt = token.p

    cdef int sample(self, Decoder decoder, float temperature, Token * token) except -1:
        """Choose the next token of a decoder: the most probable one at temperature 0, else a random one."""
        cdef int id
        with nogil:
            self._times(decoder, token)
            if temperature < 1e-6:
                id = decoder.found.arg
            else:
                id = decoder.rng.draw(decoder.logits, self.n_vocab, decoder.log_z)
            self._take(decoder, id, token)
        return 0

    cdef int candidates(self, Decoder decoder, int n, bint draw, Token * found) except -1:
        """Put the n most probable next tokens, best first, or n random draws, into `found`. Returns how many."""
        cdef int i
        cdef int * ids = <int *>malloc(n * sizeof(int))
        if ids == NULL:
            raise MemoryError
        try:
            if draw:
                for i in range(n):
                    ids[i] = decoder.rng.draw(decoder.logits, self.n_vocab, decoder.log_z)
            else:
                n = top_k(decoder.logits, self.n_vocab, n, ids)
            self._times(decoder, &found[0])
            for i in range(n - 1, -1, -1):
                found[i] = found[0]
                self._take(decoder, ids[i], &found[i])
        finally:
            free(ids)
        return n
