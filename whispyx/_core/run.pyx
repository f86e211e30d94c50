"""One whole recognition as a small machine: each phase is one short method that says which phase comes next.

START MEL LANGUAGE, then per window SEEK ENCODE, per temperature ATTEMPT PROMPT STEP… RANK, then EMIT ADVANCE, until
DONE. `FullRun.step` runs one phase, which lets a test stop anywhere; `full` runs all. The rules are whisper.cpp
1.8.5's; docs/differences.md lists where they differ and why.
"""

import logging

from libc.math cimport exp, log
from libc.string cimport memset

import numpy as np

from whispyx._core.clock cimport now_us
from whispyx._core.context cimport Context
from whispyx._core.decode cimport decode_batch
from whispyx._core.encode cimport encode_window
from whispyx._core.lang cimport detect
from whispyx._core.logits cimport LogitRules
from whispyx._core.mel cimport MelSpectrogram
from whispyx._core.params cimport FullParams
from whispyx._core.prompt cimport History
from whispyx._core.results cimport RunResult, Timings
from whispyx._core.segments cimport cut, ends_with_single_timestamp
from whispyx._core.sequence cimport Decoder, Token, advance
from whispyx._core.state cimport Clocks, State
from whispyx._core.vecmath cimport max_of, sum_exp

from whispyx._core.prompt import start as start_history, task_tokens
from whispyx.errors import Aborted, AudioError, ComputeError, ComputeMemoryError, StateError, error_for
from whispyx.languages import CODES, lang_id

_logger = logging.getLogger("whispyx.core")

cdef enum:
    FRAMES_PER_WINDOW = 3000
    DELTA_MIN = 10                  # frames: less audio than this is not decoded
    FORGET_TAIL = 500               # frames: in the last 5 s, earlier text does more harm than good
    DISTIL_TEXT_LAYERS = 2          # the first distilled models were trained without timestamps …
    DISTIL_V3_VOCAB = 51866         # … those of this vocabulary with them

# whisper_full's status for a failure in a phase; a decoder that fails on the prompt is -8, on a later token -9.
FAILED_IN = {<int>MEL: -2, <int>LANGUAGE: -3, <int>ENCODE: -6, <int>PROMPT: -8, <int>STEP: -9}

PHASES = ("START", "MEL", "LANGUAGE", "SEEK", "ENCODE", "ATTEMPT", "PROMPT", "STEP", "RANK", "EMIT", "ADVANCE", "DONE")


cdef int check_pair(Context ctx, State state) except -1:
    if state.ctx is not ctx:
        raise StateError("the state was made from another model")
    return 0


cdef class FullRun:
    """A recognition in progress.

    Parameters
    ----------
    ctx, state, params
        Model, working memory (made from `ctx`) and parameters. The parameters are copied.
    samples
        float32 (n_samples,), 16 kHz mono; None takes the spectrogram that the state holds.
    """

    def __init__(self, Context ctx not None, State state not None, FullParams params not None, samples=None) -> None:
        if self.state is not None:
            raise StateError("the run is made already")
        ctx.check_open()
        check_pair(ctx, state)
        if samples is not None:
            try:
                samples = np.asarray(samples)
            except (TypeError, ValueError) as error:
                raise AudioError(f"samples are no array of numbers: {error}") from error
            # More are refused when the spectrogram is made.
            self.n_samples = <int>min(<long long>samples.size, <long long>(2**31 - 1))
        self.ctx, self.state, self.params = ctx, state, params.copy()
        self.samples = samples
        self.segments = []
        self.lang = self.encoded_seek = -1
        self.next = START
        self.started_us = now_us()

    @property
    def phase(self) -> str:
        """Name of the phase that `step` runs next."""
        return PHASES[<int>self.next]

    def step(self) -> str:
        """Run one phase and return the name of the next one.

        The state must not be in use by another job; a run may be interleaved with the state's stage calls only
        between windows.
        """
        self.enter()
        try:
            self.advance_phase()
        finally:
            self.state.leave()
        return PHASES[<int>self.next]

    def run(self) -> RunResult:
        """Run all phases that are left and return the result."""
        self.enter()
        self.state.abort.callback = self.params.get("abort_callback")
        try:
            while self.next != DONE:
                self.advance_phase()
        except Aborted as stop:
            stop.partial = self.result()
            raise
        finally:
            self.state.abort.callback = None
            self.state.leave()
        return self.result()

    cdef int enter(self) except -1:
        """Take the state. What another job left in it is no part of this run."""
        if self.state is None:
            raise StateError("the run was never made")
        self.state.enter()
        if self.state.n_uses != self.use + 1:
            self.encoded_seek = -1
            if self.next in (ATTEMPT, PROMPT, STEP):
                self.state.leave()
                raise StateError("the state did other work in the middle of a window of this run")
        self.use = self.state.n_uses
        return 0

    cdef int advance_phase(self) except -1:
        """Run the next phase. Failures of the engine carry the status that whisper_full has for the phase."""
        cdef Phase phase = self.next
        try:
            self._run_phase(phase)
        except (Aborted, ComputeError) as error:
            if error.code is None:
                error.code, error.where = FAILED_IN.get(<int>phase), "whisper_full"
            raise
        return 0

    cdef int _run_phase(self, Phase phase) except -1:
        if phase == START:
            self.next = self._start()
        elif phase == MEL:
            self.next = self._mel()
        elif phase == LANGUAGE:
            self.next = self._language()
        elif phase == SEEK:
            self.next = self._seek()
        elif phase == ENCODE:
            self.next = self._encode()
        elif phase == ATTEMPT:
            self.next = self._attempt()
        elif phase == PROMPT:
            self.next = self._prompt()
        elif phase == STEP:
            self.next = self._step()
        elif phase == RANK:
            self.next = self._rank()
        elif phase == EMIT:
            self.next = self._emit()
        elif phase == ADVANCE:
            self.next = self._advance()
        return 0

    cdef Phase _start(self) except *:
        cdef FullParams p = self.params
        cdef float t
        cdef int i
        self.n_threads = p.get("n_threads")
        if p.get("audio_ctx") > self.ctx.hparams.n_audio_ctx:
            raise error_for("whisper_full", -5, f"{p.get('audio_ctx')} > {self.ctx.hparams.n_audio_ctx}")
        self.temperatures = [p.get("temperature")]
        if p.get("temperature_inc") > 0:
            t = p.get("temperature") + p.get("temperature_inc")
            while t < 1.0 + 1e-6:
                self.temperatures.append(t)
                t += <float>p.get("temperature_inc")
        self.decoders = [Decoder(i, self.ctx.hparams.n_text_ctx) for i in range(p.get("best_of"))]
        for i in range(len(self.decoders)):
            (<Decoder>self.decoders[i]).rng.seed((p.get("seed") + i) % 2**32)
        memset(&self.state.clocks, 0, sizeof(Clocks))
        self.state.audio_ctx = p.get("audio_ctx")
        if self.samples is not None and self.n_samples == 0:
            return DONE
        return MEL

    cdef Phase _mel(self) except *:
        cdef FullParams p = self.params
        cdef long long start = now_us()
        if self.samples is not None:
            self.state.mel = None
            self.state.mel = MelSpectrogram.of_samples(self.samples, self.ctx.filters, self.n_threads)
            self.state.clocks.mel_us += now_us() - start
        elif self.state.mel is None:
            raise AudioError("there is no audio: give samples, or put a spectrogram into the state first")
        self.seek_start = self.seek = p.get("offset_ms") // 10
        self.seek_end = self.state.mel.n_len_org
        if p.get("duration_ms") > 0:
            self.seek_end = min(self.seek_end, self.seek_start + p.get("duration_ms") // 10)
        if self.seek_end < self.seek_start + DELTA_MIN:
            _logger.warning("%d ms of audio after the offset: at least %d ms are needed",
                            max(0, 10 * (self.seek_end - self.seek_start)), 10 * DELTA_MIN)
            return DONE
        if self.ctx.weights is None:
            return DONE     # a file without tensors: nothing can be recognised
        return LANGUAGE

    cdef Phase _language(self) except *:
        cdef FullParams p = self.params
        language = p.get("language")
        if language is None or p.get("detect_language"):
            self.lang, probabilities = detect(self.state, self.seek, self.n_threads)
            self.language_probability = float(probabilities[self.lang])
            if self.ctx.vocab.is_multilingual:
                self.encoded_seek = self.seek
            if p.get("detect_language"):
                return DONE
        else:
            self.lang = lang_id(language)
        self.no_timestamps = p.get("no_timestamps")
        if (self.ctx.hparams.n_text_layer == DISTIL_TEXT_LAYERS and self.ctx.hparams.n_vocab != DISTIL_V3_VOCAB
                and not self.no_timestamps):
            _logger.warning("a first-generation distilled model knows no timestamps: they are switched off")
            self.no_timestamps = True
        self.init = task_tokens(self.ctx.vocab, self.lang, p.get("translate"), self.no_timestamps)
        start_history(self.state.history, self.ctx.vocab, p, self.ctx.hparams.n_text_ctx)
        self.rules = LogitRules(self.ctx.vocab, self.ctx.hparams.n_audio_ctx, p, self.no_timestamps)
        self.ends.beg, self.ends.eot = self.ctx.vocab.beg, self.ctx.vocab.eot
        self.ends.max_tokens = p.get("max_tokens")
        self.ends.max_steps = self.ctx.hparams.n_text_ctx // 2 - 4
        self.ends.seek_end, self.ends.delta_min = self.seek_end, DELTA_MIN
        self.ends.single_segment, self.ends.no_timestamps = p.get("single_segment"), self.no_timestamps
        return SEEK

    cdef Phase _seek(self) except *:
        progress = self.params.get("progress_callback")
        if progress is not None:
            done = self.seek - self.seek_start
            progress(100 if self.seek + DELTA_MIN >= self.seek_end
                     else min(100, 100 * done // (self.seek_end - self.seek_start)))
        if self.seek + DELTA_MIN >= self.seek_end:
            return DONE
        begin = self.params.get("encoder_begin_callback")
        if begin is not None and not begin():
            return DONE
        return ENCODE

    cdef Phase _encode(self) except *:
        if self.encoded_seek != self.seek or self.state.encoded_ctx == 0:
            self.encoded_seek = -1
            encode_window(self.state, self.seek, self.n_threads)
            self.encoded_seek = self.seek
        if self.seek > self.seek_start and self.seek + FORGET_TAIL >= self.seek_end:
            self.state.history.forget()
        self.i_temperature = 0
        return ATTEMPT

    cdef Phase _attempt(self) except *:
        cdef Decoder decoder
        cdef int i
        self.temperature = self.temperatures[self.i_temperature]
        self.n_active = 1 if self.temperature < 1e-6 else len(self.decoders)
        for i in range(self.n_active):
            decoder = self.decoders[i]
            decoder.reset()
        self.best = None
        self.i_step = 0
        self.ends.seek = self.seek
        return PROMPT

    cdef Phase _prompt(self) except *:
        cdef State state = self.state
        cdef Decoder decoder, first = self.decoders[0]
        cdef int i, sot
        cdef list prompt = state.history.prompt(
            self.ctx.vocab, self.init, self.params.get("n_max_text_ctx"), self.ctx.hparams.n_text_ctx,
            self.temperature)
        self.n_prompt = len(prompt)
        sot = self.n_prompt - len(self.init)
        try:
            state.need_decoders(self.n_active)
        except ComputeMemoryError as error:
            error.code, error.where = -7, "whisper_full"
            raise
        state.kv_self.clear()
        state.batch.clear()
        for i in range(self.n_prompt):
            state.batch.add(prompt[i], i, 1, i == sot or i == self.n_prompt - 1)
        decode_batch(state, self.n_threads)
        self.no_speech_prob = self._probability(state.logit_rows, self.ctx.vocab.nosp)
        self.rules.process(first, state.logit_rows + <size_t>(state.n_logits - 1) * self.ctx.hparams.n_vocab,
                           self.temperature)
        for i in range(1, self.n_active):
            decoder = self.decoders[i]
            decoder.logits, decoder.log_z = first.logits, first.log_z
            state.kv_self.seq_cp(0, i)
        return STEP

    cdef float _probability(self, const float * row, int token) except? -1.0:
        """Softmax of one token over an unfiltered row of logits."""
        cdef int n = self.ctx.hparams.n_vocab
        cdef float top
        cdef double total
        with nogil:
            top = max_of(row, n)
            total = sum_exp(row, n, top)
        return <float>exp(row[token] - top - log(total))

    cdef Phase _step(self) except *:
        cdef State state = self.state
        cdef Decoder decoder
        cdef Token token
        cdef int i, row = 0
        cdef long long start = now_us()
        state.batch.clear()
        for i in range(self.n_active):
            decoder = self.decoders[i]
            if decoder.completed or decoder.failed:
                continue
            self.rules.sample(decoder, self.temperature, &token)
            state.clocks.n_sample += 1
            decoder.append(&token)
            advance(decoder, self.i_step, &self.ends)
            if not decoder.completed and not decoder.failed:
                state.batch.add(token.id, self.n_prompt + self.i_step, <unsigned int>1 << i, True)
        self.i_step += 1
        state.clocks.sample_us += now_us() - start
        if state.batch.n_tokens == 0 or self.i_step >= self.ends.max_steps:
            return RANK
        decode_batch(state, self.n_threads)
        start = now_us()
        for i in range(self.n_active):
            decoder = self.decoders[i]
            if decoder.completed or decoder.failed:
                continue
            self.rules.process(decoder, state.logit_rows + <size_t>row * self.ctx.hparams.n_vocab, self.temperature)
            row += 1
        state.clocks.sample_us += now_us() - start
        return STEP

    cdef Phase _rank(self) except *:
        """Score the decoders. The best one that has not failed wins; when all have, the best of them."""
        cdef FullParams p = self.params
        cdef Decoder decoder
        cdef bint looped
        for i in range(self.n_active):
            decoder = self.decoders[i]
            looped = decoder.failed
            decoder.rank(p.get("length_penalty"), p.get("entropy_thold"))
            if decoder.failed and not looped:
                self.state.clocks.n_fail_h += 1
            if self.best is None or (decoder.failed, -decoder.score) < (self.best.failed, -self.best.score):
                self.best = decoder
        if self.i_temperature + 1 < len(self.temperatures) and (
                self.best.failed or (self.best.avg_logprobs < p.get("logprob_thold")
                                     and self.no_speech_prob < p.get("no_speech_thold"))):
            self.state.clocks.n_fail_p += 1
            self.i_temperature += 1
            return ATTEMPT
        return EMIT

    cdef Phase _emit(self) except *:
        cdef FullParams p = self.params
        cdef Decoder best = self.best
        cdef History history = self.state.history
        cdef int i
        if self.no_speech_prob > p.get("no_speech_thold") and best.avg_logprobs < p.get("logprob_thold"):
            return ADVANCE      # nobody speaks in this window
        history.rolling = ([] if p.get("carry_initial_prompt") else history.used) + [
            best.tokens[i].id for i in range(best.n_tokens)]
        found = cut(best, self.ctx.vocab, self.seek, self.seek_end, self.no_speech_prob, self.temperature,
                    p.get("print_special"), p.get("single_segment"), p.get("tdrz_enable"))
        callback = p.get("new_segment_callback")
        for segment in found:
            self.segments.append(segment)
            if callback is not None:
                callback([segment])
        return ADVANCE

    cdef Phase _advance(self) except *:
        cdef int delta = self.best.seek_delta
        if ends_with_single_timestamp(self.best, self.ctx.vocab, self.params.get("max_tokens"),
                                      self.params.get("single_segment")):
            delta = min(self.seek_end - self.seek, <int>FRAMES_PER_WINDOW)
        # A window that ends where it began would be decoded for ever.
        self.seek += delta if delta > 0 else FRAMES_PER_WINDOW
        return SEEK

    def result(self) -> RunResult:
        """Return what has been recognised so far."""
        if self.state is None:
            raise StateError("the run was never made")
        cdef RunResult out = RunResult.__new__(RunResult)
        out.language = CODES[self.lang] if self.lang >= 0 else None
        out.language_probability = self.language_probability
        out.segments = tuple(self.segments)
        out.timings = self._timings()
        out.n_samples = self.n_samples
        return out

    cdef Timings _timings(self):
        cdef Timings out = Timings.__new__(Timings)
        cdef Clocks * c = &self.state.clocks
        out.load_ms = self.ctx.load_ms
        out.mel_ms, out.encode_ms, out.cross_ms = c.mel_us / 1e3, c.encode_us / 1e3, c.cross_us / 1e3
        out.decode_ms, out.batchd_ms, out.prompt_ms = c.decode_us / 1e3, c.batchd_us / 1e3, c.prompt_us / 1e3
        out.sample_ms = c.sample_us / 1e3
        out.total_ms = (now_us() - self.started_us) / 1e3
        out.n_encode, out.n_decode, out.n_batchd, out.n_prompt = c.n_encode, c.n_decode, c.n_batchd, c.n_prompt
        out.n_sample, out.n_fail_p, out.n_fail_h = c.n_sample, c.n_fail_p, c.n_fail_h
        return out


def full(Context ctx, State state, FullParams params, samples=None) -> RunResult:
    """Recognise a recording.

    Parameters
    ----------
    ctx, state, params
        See `FullRun`.
    samples
        float32 (n_samples,), 16 kHz mono, finite. None takes the state's spectrogram. Empty gives an empty result.

    Raises
    ------
    AudioError, ParamsError, LanguageError
        Input that cannot be used.
    Aborted
        The abort callback said so; `partial` is the result so far.
    ComputeError, ComputeMemoryError
        The engine failed; `code` is whisper_full's status.
    StateError
        The state is closed or in use.
    """
    return FullRun(ctx, state, params, samples).run()


def detect_language(Context ctx not None, State state not None, samples, int n_threads=1, int offset_ms=0):
    """Return (language id, float32 probabilities (n_languages,)) of the 30 s from `offset_ms` on.

    `samples` is float32 (n_samples,), or None to use the state's spectrogram.

    Raises
    ------
    ComputeError
        There is no audio at the offset.
    """
    ctx.check_open()
    check_pair(ctx, state)
    state.enter()
    try:
        if samples is not None:
            state.mel = None
            state.mel = MelSpectrogram.of_samples(samples, ctx.filters, n_threads)
        state.audio_ctx = 0
        return detect(state, offset_ms // 10, n_threads)
    finally:
        state.leave()
