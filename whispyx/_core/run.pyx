# distutils: language = c++
"""One whole recognition as a small machine: each phase is one short method that says which phase comes next.

START VAD MEL LANGUAGE, then per window SEEK ENCODE, per temperature ATTEMPT PROMPT STEP… RANK, then EMIT ADVANCE, until
DONE. `FullRun.step` runs one phase, which lets a test stop anywhere; `full` runs all. The rules are whisper.cpp
1.8.5's; docs/differences.md lists where they differ and why.
"""

import logging

from libc.string cimport memset

import numpy as np

from whispyx._core.attempt cimport Attempt
from whispyx._core.check cimport as_samples
from whispyx._core.clock cimport now_us
from whispyx._core.context cimport Context
from whispyx._core.decode cimport decode_batch
from whispyx._core.emit cimport Emitter
from whispyx._core.encode cimport encode_window
from whispyx._core.grammar cimport Grammar
from whispyx._core.lang cimport check_pair, detect
from whispyx._core.logits cimport LogitRules
from whispyx._core.mel cimport MelSpectrogram
from whispyx._core.params cimport FullParams
from whispyx._core.prompt cimport History
from whispyx._core.report cimport timings_of, window_of
from whispyx._core.results cimport RunResult, WindowData
from whispyx._core.segments cimport cut, ends_with_single_timestamp
from whispyx._core.sequence cimport Decoder, EndRules
from whispyx._core.state cimport Clocks, State

from whispyx._core.align.heads import preset_for, resolve
from whispyx._core.params import temperatures
from whispyx._core.prompt import start as start_history, task_tokens
from whispyx._core.vad.prepass import find_speech
from whispyx.errors import (Aborted, AudioError, ComputeError, DeviceError, ParamsError, StateError,
                            WhispyxError, error_for)
from whispyx.languages import CODES, lang_id

_logger = logging.getLogger("whispyx.core")

cdef enum:
    FRAMES_PER_WINDOW = 3000
    DELTA_MIN = 10                  # frames: less audio than this is not decoded
    FORGET_TAIL = 500               # frames: in the last 5 s, earlier text does more harm than good
    SILENCE_BEHIND = 128            # frames of a window that is sized to the sound …
    FRAMES_PER_STEP = 100           # … to a multiple of this, so that few sizes occur
    KEEPER = 63                     # sequence
    DISTIL_TEXT_LAYERS = 2          # the first distilled models were trained without timestamps …
    DISTIL_V3_VOCAB = 51866         # … those of this vocabulary with them

# whisper_full's status for a failure in a phase; a decoder that fails on the prompt is -8, on a later token -9.
FAILED_IN = {<int>VAD: -1, <int>MEL: -2, <int>LANGUAGE: -3, <int>ENCODE: -6, <int>PROMPT: -8, <int>STEP: -9}

PHASES = ("START", "VAD", "MEL", "LANGUAGE", "SEEK", "ENCODE", "ATTEMPT", "PROMPT", "STEP", "RANK", "EMIT", "ADVANCE",
          "DONE")


cdef int choose_heads(Context ctx) except -1:
    """Make sure that there are heads to align with: the caller's, those of the model's files, those of its shape."""
    ctx.need_aheads()
    if not ctx.aheads_chosen:
        preset, n_top = preset_for(ctx.hparams, ctx.path)
        ctx.set_aheads(resolve(preset, n_top, None, ctx.hparams))
    if not ctx.aheads:
        raise ParamsError("dtw and word_timestamps need alignment heads: give them to the model with set_aheads")
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
        self.emitter = Emitter(ctx, state, self.params, samples, None)
        self.emitter.end = (<long long>self.n_samples + 159) // 160
        self.windows, self.speech = [], []
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
        self.state.abort.begin(self.params.get("abort_callback"))
        try:
            self.advance_phase()
        finally:
            self.state.abort.callback = None
            self.state.leave()
        return PHASES[<int>self.next]

    def run(self) -> RunResult:
        """Run all phases that are left and return the result."""
        self.enter()
        self.state.abort.begin(self.params.get("abort_callback"))
        try:
            while self.next != DONE:
                self.advance_phase()
        except BaseException as error:
            try:
                error.partial = self.result()
            except AttributeError:
                pass    # an exception of the caller's own that takes no attributes; `segments` still has them
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
        except WhispyxError as error:
            if error.code is None and (phase == VAD or isinstance(error, (Aborted, ComputeError, DeviceError))):
                error.code, error.where = FAILED_IN.get(<int>phase), "whisper_full"
            raise
        return 0

    cdef int _run_phase(self, Phase phase) except -1:
        if phase == START:
            self.next = self._start()
        elif phase == VAD:
            self.next = self._vad()
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
        elif phase == PROMPT or phase == STEP:
            self.next = self._decode()
        elif phase == RANK:
            self.next = self._rank()
        elif phase == EMIT:
            self.next = self._emit()
        elif phase == ADVANCE:
            self.next = self._advance()
        return 0

    cdef Phase _start(self) except *:
        cdef FullParams p = self.params
        self.n_threads = p.get("n_threads")
        if p.get("audio_ctx") > self.ctx.hparams.n_audio_ctx:
            raise error_for("whisper_full", -5, f"{p.get('audio_ctx')} > {self.ctx.hparams.n_audio_ctx}")
        self.temperatures = temperatures(p)
        self.attempt = Attempt(p, self.ctx.hparams.n_text_ctx, self.ctx.vocab)
        self.attempt.first = self.first
        # One sequence that no decoder uses holds the prompt for the next temperature.
        self.attempt.keeper = KEEPER if len(self.temperatures) > 1 and not self.state.shared else -1
        if p.get("dtw") or p.get("word_timestamps"):
            choose_heads(self.ctx)
        if not self.state.shared:
            memset(&self.state.clocks, 0, sizeof(Clocks))
        self.state.audio_ctx = p.get("audio_ctx")
        if self.samples is not None:
            self.samples = np.asarray(as_samples(self.samples))
            self.emitter.samples = self.samples
            if self.n_samples == 0:
                return DONE
        if p.get("vad"):
            return VAD
        return MEL

    cdef Phase _vad(self) except *:
        """Keep the parts of the recording in which somebody speaks."""
        cdef FullParams p = self.params
        if self.samples is None:
            raise AudioError("voice activity is found in samples; a ready spectrogram has none")
        if p.get("vad_model_path") is None:
            raise ParamsError("vad needs vad_model_path, the file of a voice activity model")
        self.speech, heard, self.emitter.time_map = find_speech(
            self.state, self.samples, p.get("vad_model_path"), p.get("vad_params"), self.n_threads)
        if not self.speech:
            return DONE
        self.samples = self.emitter.samples = heard
        return MEL

    cdef Phase _mel(self) except *:
        cdef FullParams p = self.params
        cdef long long start = now_us()
        self.emitter.start()
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
        if self.state.weights is None:
            return DONE     # a file without tensors: nothing can be recognised
        return LANGUAGE

    cdef Phase _language(self) except *:
        cdef FullParams p = self.params
        cdef EndRules * ends
        language = p.get("language")
        if language is None or p.get("detect_language"):
            self._fit()
            self.lang, probabilities = detect(self.state, self.seek, self.n_threads, self.first)
            self.language_probability = float(probabilities[self.lang])
            if self.ctx.vocab.is_multilingual:
                self.encoded_seek = self.seek
            if p.get("detect_language"):
                return DONE
        else:
            self.lang = lang_id(language)
        self.no_timestamps = p.get("no_timestamps")
        if p.get("grammar") is not None:
            self.attempt.grammar = (<Grammar>p.get("grammar")).start(self.ctx.vocab)
        if (self.ctx.hparams.n_text_layer == DISTIL_TEXT_LAYERS and self.ctx.vocab.end != DISTIL_V3_VOCAB
                and not self.no_timestamps):
            _logger.warning("a first-generation distilled model knows no timestamps: they are switched off")
            self.no_timestamps = True
        self.init = task_tokens(self.ctx.vocab, self.lang, p.get("translate"), self.no_timestamps)
        start_history(self.state.history, self.ctx.vocab, p, self.ctx.hparams.n_text_ctx)
        self.attempt.rules = LogitRules(
            self.ctx.vocab, self.ctx.hparams.n_audio_ctx, p, self.no_timestamps,
            *((self.ctx.suppress_tokens, self.ctx.begin_suppress_tokens) if p.get("suppress_listed") else ()))
        ends = &self.attempt.ends
        ends.beg, ends.end, ends.eot = self.ctx.vocab.beg, self.ctx.vocab.end, self.ctx.vocab.eot
        ends.max_tokens = p.get("max_tokens")
        ends.max_steps = self.ctx.hparams.n_text_ctx // 2 - 4
        ends.seek_end, ends.delta_min = self.seek_end, DELTA_MIN
        ends.single_segment, ends.no_timestamps = p.get("single_segment"), self.no_timestamps
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

    cdef void _fit(self) noexcept:
        """Size the encoder to what is left of the sound, and some silence that tells the model it has ended."""
        cdef int n_frames = min(self.seek_end - self.seek, <int>FRAMES_PER_WINDOW) + SILENCE_BEHIND
        if self.params.get("no_pad") and self.params.get("audio_ctx") == 0:
            n_frames = (n_frames + FRAMES_PER_STEP - 1) // FRAMES_PER_STEP * FRAMES_PER_STEP
            self.state.audio_ctx = min(n_frames // 2, self.ctx.hparams.n_audio_ctx)

    cdef Phase _encode(self) except *:
        if self.encoded_seek != self.seek or self.state.encoded_ctx == 0:
            self.encoded_seek = -1
            self._fit()
            encode_window(self.state, self.seek, self.n_threads)
            self.encoded_seek = self.seek
        self.attempt.forget()
        if self.seek > self.seek_start and self.seek + FORGET_TAIL >= self.seek_end:
            self.state.history.forget()
        self.i_temperature = 0
        return ATTEMPT

    cdef Phase _attempt(self) except *:
        self.attempt.begin(self.state, self.temperatures[self.i_temperature])
        self.attempt.ends.seek = self.seek
        return PROMPT

    cdef int fill(self) except -1:
        """Add the rows of the next PROMPT or STEP to the state's batch and return how many have logits.

        Without any the phase is over, as `next` says then.
        """
        cdef int n
        cdef list prompt
        if self.next == PROMPT:
            prompt = self.state.history.prompt(
                self.ctx.vocab, self.init, self.params.get("n_max_text_ctx"), self.ctx.hparams.n_text_ctx,
                self.attempt.temperature)
            n = self.attempt.fill_prompt(self.state, prompt, <int>len(self.init))
            if n == 0:
                self.next = STEP
            return n
        n = self.attempt.fill_step(self.state)
        if n == 0:
            self.next = RANK
        return n

    cdef int take(self, int row) except -1:
        """Read the logits of what `fill` has added, which begin at `row`. Returns the row after them."""
        if self.next == PROMPT:
            self.next = STEP
            return self.attempt.take_prompt(self.state, row)
        return self.attempt.take_step(self.state, row)

    cdef Phase _decode(self) except *:
        """PROMPT or STEP where this run has the state for itself."""
        self.state.batch.clear()
        if self.fill() > 0:
            decode_batch(self.state, self.n_threads)
            self.take(0)
        return self.next

    cdef Phase _rank(self) except *:
        if self.attempt.rank(self.state) and self.i_temperature + 1 < len(self.temperatures):
            self.state.clocks.n_fail_p += 1
            self.i_temperature += 1
            return ATTEMPT
        return EMIT

    cdef Phase _emit(self) except *:
        cdef FullParams p = self.params
        cdef Decoder best = self.attempt.best
        cdef History history = self.state.history
        cdef WindowData window
        cdef int i
        cdef float no_speech_prob = self.attempt.no_speech_prob
        silent = no_speech_prob > p.get("no_speech_thold") and best.avg_logprobs < p.get("logprob_thold")
        window = window_of(best, self.ctx.vocab, self.seek, self.seek_end, self.attempt.temperature, no_speech_prob,
                           silent)
        window.t0, window.t1 = self.emitter.place(window.t0), self.emitter.place(window.t1)
        self.windows.append(window)
        if silent:
            return ADVANCE      # nobody speaks in this window
        history.rolling = ([] if p.get("carry_initial_prompt") else history.used) + [
            best.tokens[i].id for i in range(best.result_len)]
        found = cut(best, self.ctx.vocab, self.seek, self.seek_end, self.state.mel.n_end, no_speech_prob,
                    self.attempt.temperature, p.get("print_special"), p.get("single_segment"), p.get("tdrz_enable"))
        self.emitter.window(found, self.seek, min(best.seek_delta, self.seek_end - self.seek), self.lang,
                            self.n_threads)
        return ADVANCE

    cdef Phase _advance(self) except *:
        cdef int delta = self.attempt.best.seek_delta
        if ends_with_single_timestamp(self.attempt.best, self.ctx.vocab, self.params.get("max_tokens"),
                                      self.params.get("single_segment")):
            delta = min(self.seek_end - self.seek, <int>FRAMES_PER_WINDOW)
        # A window that ends where it began would be decoded for ever.
        self.seek += delta if delta > 0 else FRAMES_PER_WINDOW
        return SEEK

    cdef void be_part(self, long long shift, object time_map, long long end) noexcept:
        """Make this a run over a part of a recording: it begins at `shift` there, which ends at `end` (10 ms units)."""
        self.emitter.shift, self.emitter.time_map, self.emitter.end = shift, time_map, end

    @property
    def segments(self) -> list:
        """The segments so far; the list grows while the run goes on."""
        return [] if self.emitter is None else self.emitter.segments

    @property
    def lang_id(self) -> int:
        """Id of the language, -1 while it is not known."""
        return self.lang

    @property
    def vad_segments(self) -> list:
        """Start and end of the speech regions in units of 10 ms; empty without `vad`."""
        return self.speech

    def result(self) -> RunResult:
        """Return what has been recognised so far."""
        if self.state is None:
            raise StateError("the run was never made")
        cdef RunResult out = RunResult.__new__(RunResult)
        out.language = CODES[self.lang] if self.lang >= 0 else None
        out.language_probability = self.language_probability
        out.segments = tuple(self.emitter.segments)
        out.timings = timings_of(self.state, self.started_us)
        out.n_samples = self.n_samples
        out.windows, out.vad_segments = tuple(self.windows), tuple(self.speech)
        out.seed = self.params.get("seed")
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
