"""From a row of logits to the next token: what may not be said, when a timestamp must come, and the choice.

The order of the rules is whisper.cpp's (`whisper_process_logits`), which follows the reference decoding of
Radford et al. 2022; results depend on it.
"""

from libc.math cimport INFINITY, exp, log, lround
from libc.stdlib cimport free, malloc

from whispyx._core.sequence cimport Decoder, Token
from whispyx._core.vecmath cimport arg_max, max_of, sum_exp
from whispyx._core.vocab cimport Vocab

from whispyx.constants import CHUNK_SIZE
from whispyx.errors import ComputeError

# Signs that are not speech; suppressed with and without a space in front when they are one token.
NON_SPEECH = (
    '"', "#", "(", ")", "*", "+", "/", ":", ";", "<", "=", ">", "@", "[", "\\", "]", "^", "_", "`", "{", "|", "}", "~",
    "「", "」", "『", "』", "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))",
    "[[", "]]", "{{", "}}", "♪♪", "♪♪♪", "♩", "♪", "♫", "♬", "♭", "♮", "♯",
)
N_LANGUAGE_TOKENS = 100


def non_speech_tokens(Vocab vocab not None) -> list[int]:
    """Return the ids that `suppress_nst` suppresses."""
    texts = [space + sign for sign in NON_SPEECH for space in ("", " ")] + [" -", " '"]
    found = {vocab.find(text.encode()) for text in texts}
    return sorted(token for token in found if token >= 0)


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
    """

    def __init__(self, Vocab vocab not None, int n_audio_ctx, params, bint no_timestamps) -> None:
        cdef int i
        self.n_vocab, self.eot, self.beg = vocab.n_vocab, vocab.eot, vocab.beg
        self.n_audio_ctx = n_audio_ctx
        self.blank = vocab.find(b" ")
        self.suppress_blank = params.suppress_blank
        self.no_timestamps, self.single_segment = no_timestamps, params.single_segment
        self.max_tokens = params.max_tokens
        self.max_initial = -1
        if params.max_initial_ts > 0:
            step = CHUNK_SIZE / n_audio_ctx
            self.max_initial = min(self.n_vocab - 1, self.beg + <int>lround(params.max_initial_ts / step))
        never = {vocab.not_, vocab.sot, vocab.nosp, vocab.translate, vocab.transcribe, vocab.prev}
        if not params.tdrz_enable:
            never.add(vocab.solm)
        never.update(range(vocab.sot + 1, min(vocab.sot + 1 + N_LANGUAGE_TOKENS, vocab.n_vocab)))
        if params.suppress_nst:
            never.update(non_speech_tokens(vocab))
        self.n_always = len(never)
        self.always = <int *>malloc(self.n_always * sizeof(int))
        if self.always == NULL:
            raise MemoryError
        for i, token in enumerate(sorted(never)):
            self.always[i] = token

    def __dealloc__(self):
        free(self.always)

    cdef void _suppress(self, Decoder decoder, float * row) noexcept nogil:
        """Rules that look at ids and at what was said before."""
        cdef int i, n = decoder.n_tokens, limit
        cdef bint last, penultimate
        if n == 0 and self.suppress_blank:
            row[self.eot] = -INFINITY
            if self.blank >= 0:
                row[self.blank] = -INFINITY
        for i in range(self.n_always):
            row[self.always[i]] = -INFINITY
        if self.no_timestamps:
            for i in range(self.beg, self.n_vocab):
                row[i] = -INFINITY
        elif self.max_tokens > 0 and not self.single_segment and n >= self.max_tokens:
            for i in range(self.eot):
                row[i] = -INFINITY      # the window ends here: only a timestamp or the end may follow

        # Timestamps come in pairs, except right before the end.
        last = n > 0 and decoder.tokens[n - 1].id >= self.beg
        penultimate = n < 2 or decoder.tokens[n - 2].id >= self.beg
        if last and penultimate:
            for i in range(self.beg, self.n_vocab):
                row[i] = -INFINITY
        elif last:
            for i in range(self.eot):
                row[i] = -INFINITY
        if n == 0 and self.max_initial >= 0:
            for i in range(self.max_initial + 1, self.n_vocab):
                row[i] = -INFINITY
        if decoder.has_ts:
            limit = min(self.beg + decoder.seek_delta // 2, self.n_vocab)
            for i in range(self.beg, limit):
                row[i] = -INFINITY      # time does not go back

    cdef int process(self, Decoder decoder, float * row, float temperature) except -1:
        """Apply the rules to a row in place and give it to the decoder."""
        cdef int i
        cdef float top, top_text, top_time
        cdef double total, time_total
        with nogil:
            if temperature >= <float>1e-6:     # below, `sample` is greedy and a division could overflow
                for i in range(self.n_vocab):
                    row[i] /= temperature
            self._suppress(decoder, row)
            top = max_of(row, self.n_vocab)
            total = sum_exp(row, self.n_vocab, top) if top > -INFINITY else 0.0
            if total > 0.0:
                decoder.log_z = top + log(total)
                # When all timestamps together are more probable than any text, it has to be a timestamp.
                top_text = max_of(row, self.beg)
                top_time = max_of(row + self.beg, self.n_vocab - self.beg)
                if top_time > -INFINITY:
                    time_total = top_time + log(sum_exp(row + self.beg, self.n_vocab - self.beg, top_time))
                    if time_total > top_text:
                        for i in range(self.beg):
                            row[i] = -INFINITY
        if not total > 0.0:
            raise ComputeError("the decoder's logits are not usable: NaN, or nothing is left to choose from")
        decoder.logits = row
        return 0

    cdef int sample(self, Decoder decoder, float temperature, Token * token) except -1:
        """Choose the next token of a decoder: the most probable one at temperature 0, else a random one."""
        cdef const float * row = decoder.logits
        cdef int beg = self.beg, best
        cdef float top_time
        cdef double p_time, sum_time
        with nogil:
            best = beg + arg_max(row + beg, self.n_vocab - beg)
            top_time = row[best]
            sum_time = p_time = 0.0
            if top_time > -INFINITY:
                p_time = exp(top_time - decoder.log_z)
                sum_time = p_time * sum_exp(row + beg, self.n_vocab - beg, top_time)
            token.tid = best if p_time > 0.0 else beg
            token.ptsum = <float>sum_time
            token.pt = <float>(p_time / (sum_time + 1e-10))
            if temperature < 1e-6:
                token.id = arg_max(row, self.n_vocab)
            else:
                token.id = decoder.rng.draw(row, self.n_vocab, decoder.log_z)
            token.plog = <float>(row[token.id] - decoder.log_z)
            token.p = <float>exp(token.plog)
            if token.id >= beg:
                token.tid = token.id
                token.pt = token.p
        return 0
