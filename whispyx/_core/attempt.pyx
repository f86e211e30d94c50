# distutils: language = c++
"""One attempt at a window's text at one temperature: its decoders, from the prompt to their ranking.

`fill_prompt` and `fill_step` put rows into the state's batch, whoever runs the batch decodes it, `take_prompt` and
`take_step` read the logits. So a batch may hold rows of several windows. The prompt stays in the cache for the attempts
at other temperatures.
"""

from libc.string cimport memcpy

import numpy as np

from whispyx._core.beam cimport BeamSearch
from whispyx._core.clock cimport now_us
from whispyx._core.decode cimport need_rows
from whispyx._core.grammar cimport Grammar, GrammarState
from whispyx._core.logits cimport LogitRules
from whispyx._core.params cimport FullParams
from whispyx._core.sequence cimport Decoder, Token, advance
from whispyx._core.state cimport State
from whispyx._core.vecmath cimport probability_of
from whispyx._core.vocab cimport Vocab

from whispyx.errors import ComputeMemoryError, ParamsError

cdef enum:
    PROMPT_ROWS = 2         # logits of the start of the transcript and of the last token


def n_decoders(FullParams params not None) -> int:
    """Return how many decoders a run needs at most."""
    n = params.get("best_of")
    return max(n, params.get("beam_size")) if params.get("strategy") == "beam_search" else n


cdef class Attempt:
    """The decoders of a run.

    Parameters
    ----------
    params
        Of the run.
    n_text_ctx
        Tokens that a decoder can hold.
    vocab
        The model's vocabulary.
    """

    def __cinit__(self, FullParams params, int n_text_ctx, Vocab vocab):
        cdef int i
        self.params, self.n_vocab, self.nosp = params, vocab.n_vocab, vocab.nosp
        self.keeper = -1
        if params.get("strategy") == "beam_search":
            self.beam = BeamSearch(params.get("beam_size"), n_text_ctx, params.get("patience"),
                                   params.get("reference_sampling"))
        elif params.get("patience") > 0:
            raise ParamsError("patience is for beam search; the strategy is greedy")
        self.decoders = [Decoder(i, n_text_ctx) for i in range(n_decoders(params))]
        for i in range(len(self.decoders)):
            (<Decoder>self.decoders[i]).rng.seed((params.get("seed") + i) % 2**32)

    cdef void forget(self) noexcept:
        """The window has changed: what the cache holds is of no use any more."""
        self.kept = self.kept_row = None

    cdef int begin(self, State state, float temperature) except -1:
        """Start at a temperature."""
        cdef FullParams p = self.params
        cdef Decoder decoder
        cdef int i
        self.temperature = temperature
        self.n_active = p.get("best_of")
        if temperature < 1e-6:
            self.n_active = p.get("beam_size") if self.beam is not None else 1
        # Continuations that are not drawn at random are the same at every temperature.
        self.beams = self.beam is not None and (temperature < 1e-6 or self.beam.draw)
        if self.beam is not None:
            self.beam.reset()
        if self.grammar is not None:
            self.grammar = (<GrammarState>self.grammar).restart()
        for i in range(self.n_active):
            decoder = self.decoders[i]
            decoder.reset()
            if self.grammar is not None:
                decoder.grammar = (<GrammarState>self.grammar).copy()
        self.best = None
        self.i_step = 0
        return 0

    cdef int fill_prompt(self, State state, list prompt, int n_init) except -1:
        """Add the prompt to the batch. Returns how many rows of logits it wants: 0 when it is known already."""
        cdef int i, sot = <int>len(prompt) - n_init
        self.n_prompt = <int>len(prompt)
        try:
            state.need_decoders(self.first + self.n_active, True)
        except ComputeMemoryError as error:
            error.code, error.where = -7, "whisper_full"
            raise
        if self._recall(state, prompt):
            return 0
        state.forget_sequences(self.first, <int>len(self.decoders))
        self.kept = list(prompt) if self.keeper >= 0 else None
        for i in range(self.n_prompt):
            state.batch.add(prompt[i], i, <unsigned long long>1 << self.first,
                            wants_logits=i == sot or i == self.n_prompt - 1, early=i < sot)
        self.n_rows = 1 if sot == self.n_prompt - 1 else PROMPT_ROWS
        return self.n_rows

    cdef bint _recall(self, State state, list prompt) except -1:
        """Go back to the end of the same prompt, if the cache still holds it."""
        cdef float[::1] row
        cdef int i
        if self.kept is None or self.kept_row is None or self.kept_at != state.n_lost or self.kept != prompt:
            return False
        for i in range(len(self.decoders)):
            state.kv_self.seq_rm(self.first + i, 0)
        state.kv_self.seq_cp(self.keeper, self.first)
        need_rows(state, 1)
        row = self.kept_row
        memcpy(state.logit_rows, &row[0], self.n_vocab * sizeof(float))
        state.n_logits = 1
        self.rules.process(self.decoders[0], state.logit_rows, self.temperature)
        self._spread(state)
        return True

    cdef int take_prompt(self, State state, int row) except -1:
        """Read the logits of the prompt, which begin at `row`. Returns the row after them."""
        cdef const float * rows = state.logit_rows + <size_t>row * self.n_vocab
        cdef const float[::1] last
        cdef int n = self.n_rows
        self.no_speech_prob = probability_of(rows, self.n_vocab, self.nosp)
        if self.kept is not None:
            last = <float[:self.n_vocab]>(<float *>rows + <size_t>(n - 1) * self.n_vocab)
            self.kept_row, self.kept_at = np.array(last), state.n_lost
            state.kv_self.seq_rm(self.keeper, 0)
            state.kv_self.seq_cp(self.first, self.keeper)
        self.rules.process(self.decoders[0], <float *>rows + <size_t>(n - 1) * self.n_vocab, self.temperature)
        self._spread(state)
        return row + n

    cdef int _spread(self, State state) except -1:
        """Let all decoders go on from the prompt of the first one."""
        cdef Decoder decoder, first = self.decoders[0]
        cdef int i
        for i in range(1, self.n_active):
            decoder = self.decoders[i]
            decoder.logits, decoder.log_z, decoder.found = first.logits, first.log_z, first.found
            state.kv_self.seq_cp(self.first, self.first + i)
        return 0

    cdef int fill_step(self, State state) except -1:
        """Choose the next token of every decoder and add those that go on to the batch. Returns how many."""
        cdef Decoder decoder
        cdef Token token
        cdef int i, n = 0
        cdef long long start = now_us()
        if self.beams:
            state.clocks.n_sample += self.beam.step(self.decoders, self.n_active, self.rules, state.kv_self, self.first,
                                                    self.i_step, &self.ends)
        for i in range(self.n_active):
            decoder = self.decoders[i]
            if not self.beams and not decoder.completed and not decoder.failed:
                self.rules.sample(decoder, self.temperature, &token)
                state.clocks.n_sample += 1
                decoder.append(&token)
                advance(decoder, self.i_step, &self.ends)
            if decoder.completed or decoder.failed:
                continue
            token = decoder.tokens[decoder.n_tokens - 1]
            if decoder.grammar is not None:
                (<GrammarState>decoder.grammar).accept(token.id)
            if self.i_step + 1 < self.ends.max_steps:
                state.batch.add(token.id, self.n_prompt + self.i_step, <unsigned long long>1 << (self.first + i), True)
                n += 1
        self.i_step += 1
        state.clocks.sample_us += now_us() - start
        return n

    cdef int take_step(self, State state, int row) except -1:
        """Read the logits of the step, which begin at `row`. Returns the row after them."""
        cdef Decoder decoder
        cdef int i
        cdef long long start = now_us()
        for i in range(self.n_active):
            decoder = self.decoders[i]
            if decoder.completed or decoder.failed:
                continue
            self.rules.process(decoder, state.logit_rows + <size_t>row * self.n_vocab, self.temperature)
            row += 1
        state.clocks.sample_us += now_us() - start
        return row

    cdef bint rank(self, State state) except -1:
        """Score the decoders: the best one that has not failed wins; when all have, the best of them.

        Returns whether the text is too bad to be kept, as the thresholds say.
        """
        cdef FullParams p = self.params
        cdef Decoder decoder
        cdef bint looped
        for decoder in self.beam.finished if self.beam is not None and self.beam.finished else (
                self.decoders[:self.n_active]):
            looped = decoder.failed
            decoder.rank(p.get("length_penalty"), p.get("entropy_thold"))
            if decoder.failed and not looped:
                state.clocks.n_fail_h += 1
            if self.best is None or (decoder.failed, -decoder.score) < (self.best.failed, -self.best.score):
                self.best = decoder
        return self.best.failed or (self.best.avg_logprobs < p.get("logprob_thold")
                                    and self.no_speech_prob < p.get("no_speech_thold"))
