"""One recording recognised in several parts side by side (`whisper_full_parallel`).

The recording is cut into equal parts whatever is said there, each part has a state and a thread of its own, and the
results are put together. Faster where one job cannot keep all cores busy; worse at the cuts.
"""

import threading

import numpy as np

from whispyx._core.check cimport as_samples
from whispyx._core.clock cimport now_us
from whispyx._core.context cimport Context
from whispyx._core.emit cimport keep_inside
from whispyx._core.lang cimport check_pair
from whispyx._core.params cimport FullParams
from whispyx._core.results cimport RunResult, SegmentData, Timings
from whispyx._core.run cimport FullRun
from whispyx._core.state cimport State

from whispyx._core.run import full
from whispyx._core.vad.prepass import find_speech
from whispyx.errors import AudioError, ComputeMemoryError, ParamsError, WhispyxError
from whispyx.languages import CODES

cdef enum:
    SAMPLES_PER_MS = 16
    MAX_PROCESSORS = 64


cdef void clamp(SegmentData segment, long long earliest):
    """Let nothing of a segment begin before `earliest`, where the one before it ends."""
    segment.t0 = max(segment.t0, earliest)
    segment.t1 = max(segment.t1, segment.t0)
    keep_inside(segment)


class ParallelRun:
    """A recognition in several parts.

    Parameters
    ----------
    ctx, state, params
        As for `FullRun`. The state works on the first part; the other parts get new ones.
    samples
        float32 (n_samples,), 16 kHz mono.
    n_processors : int
        Parts, 1 to 64; each uses `params.n_threads` threads.

    Notes
    -----
    `offset_ms` and `duration_ms` choose what is divided. The language is detected once, in the first part. The
    callbacks for segments and progress speak of the first part while it runs; segments of the others follow, one by
    one, when all are done. A failure in one part stops the others and is raised.

    Raises
    ------
    ParamsError, AudioError
        A count of parts that is not possible; no samples.
    """

    def __init__(self, Context ctx not None, State state not None, FullParams params not None, samples,
                 n_processors) -> None:
        if isinstance(n_processors, bool) or not hasattr(n_processors, "__index__"):
            raise ParamsError(f"n_processors must be an integer, not {n_processors!r}")
        if not 1 <= n_processors.__index__() <= MAX_PROCESSORS:
            raise ParamsError(f"n_processors is {n_processors}; 1 to {MAX_PROCESSORS} are possible")
        if samples is None:
            raise AudioError("a recording can be divided only as samples, not as a spectrogram")
        ctx.check_open()
        check_pair(ctx, state)
        self.ctx, self.state, self.params = ctx, state, params.copy()
        self.samples = np.asarray(as_samples(samples))
        self.n_samples = len(self.samples)
        self.n_processors = n_processors.__index__()
        self.runs, self.errors, self.speech = [], [], []
        self.active = set()

    @property
    def segments(self) -> list:
        """The segments so far."""
        return self.runs[0].segments if self.runs else []

    @property
    def lang_id(self) -> int:
        """Id of the language, -1 while it is not known."""
        return self.runs[0].lang_id if self.runs else -1

    @property
    def vad_segments(self) -> list:
        """Start and end of the speech regions in units of 10 ms; empty without `vad`."""
        return self.runs[0].vad_segments if self.n_processors == 1 and self.runs else self.speech

    def run(self) -> RunResult:
        """Recognise all parts and return the whole result."""
        started = now_us()
        if self.n_processors == 1:
            self.runs = [FullRun(self.ctx, self.state, self.params, self.samples)]
            return self.runs[0].run()
        params, time_map = self.params.copy(), None
        params.print_realtime = False
        samples = self.samples
        if params.vad:
            params.vad = False
            if params.vad_model_path is None:
                raise ParamsError("vad needs vad_model_path, the file of a voice activity model")
            samples, time_map = self._speech(params)
        first, last = self._limits(params, len(samples))
        size = (last - first) // self.n_processors
        params.duration_ms = 0
        if params.detect_language:
            return full(self.ctx, self.state, self.params, self.samples)
        self._make(params, samples, first, last, size, time_map)
        self._run_all()
        return self._merge(started)

    def _speech(self, params):
        """Cut out silence once for all parts."""
        cdef State state = self.state
        state.enter()
        try:
            self.speech, heard, time_map = find_speech(state, self.samples, params.vad_model_path,
                                                       params.vad_params, params.n_threads)
        except WhispyxError as error:
            if error.code is None:
                error.code, error.where = -1, "whisper_full_parallel"
            raise
        finally:
            state.leave()
        return (np.empty(0, dtype=np.float32) if heard is None else heard), time_map

    def _limits(self, params, n):
        """Return the first sample to divide, and one past the last."""
        first = min(n, SAMPLES_PER_MS * params.offset_ms)
        last = n
        if params.duration_ms > 0:
            last = min(n, first + SAMPLES_PER_MS * params.duration_ms)
        return first, last

    def _make(self, params, samples, first, last, size, time_map):
        """Make a run for each part. The first one goes ahead as far as the language, which is that of all."""
        cdef FullRun run
        for i in range(self.n_processors):
            start = first + i * size if i else 0
            end = last if i == self.n_processors - 1 else first + (i + 1) * size
            part = params.copy()
            if i:
                part.offset_ms = 0
                part.new_segment_callback = part.progress_callback = None
            run = FullRun(self.ctx, self._state() if i else self.state, part, samples[start:end])
            run.be_part(100 * (i * size) // 16000 + params.offset_ms // 10 if i else 0, time_map,
                        (<long long>self.n_samples + 159) // 160)
            self.runs.append(run)
            while i == 0 and params.language is None and run.phase in ("START", "MEL", "LANGUAGE"):
                run.step()
            if i == 0 and run.lang_id >= 0:
                params.language = CODES[run.lang_id]

    def _state(self):
        """Return a state for another part, with the encoder of the first one."""
        state = self.ctx.new_state()
        if state.external_encoder is not self.state.external_encoder:
            state.set_encoder(self.state.external_encoder)
        return state

    def _work(self, int i):
        """Run a part, here or in its thread."""
        cdef FullRun run = self.runs[i]
        if not self.errors:
            self.active.add(i)
            try:
                run.run()
            except BaseException as error:
                self._fail(error)
            self.active.discard(i)
        self.done[i].release()

    def _fail(self, error):
        """Take note of a failure and stop all parts. One that has not begun yet will not."""
        cdef FullRun run
        self.errors.append(error)
        for run in self.runs:
            run.state.request_abort()

    def _run_all(self):
        """Run the first part here and the others beside it. The first failure is raised when all have ended.

        Ctrl-C may come at any time, but only where Python code runs: in here, that is inside of `start` and `acquire`.
        No part may go on behind the caller's back: it would stop what the state does next.
        """
        cdef FullRun run
        started = set()
        self.done = [threading.Lock() for _ in self.runs]
        for lock in self.done:
            lock.acquire()
        threads = [threading.Thread(target=self._work, args=(i,), name=f"whispyx-part-{i}", daemon=True)
                   for i in range(1, self.n_processors)]
        try:
            for i, thread in enumerate(threads, 1):
                thread.start()
                started.add(i)
        except BaseException as error:      # the system gives no more threads, or Ctrl-C
            self._fail(error)
        self._work(0)
        for i in range(1, self.n_processors):
            # Ctrl-C in `start` leaves it open whether the thread runs; without `active` it finds the error and ends.
            while i in started or i in self.active:
                try:
                    if self.done[i].acquire(timeout=1.0):
                        break
                    if not threads[i - 1].is_alive():
                        if not self.done[i].acquire(False):
                            self._fail(ComputeMemoryError(f"the thread of part {i} ended before it could work"))
                        break
                except BaseException as error:
                    self._fail(error)
        for run in self.runs[1:]:
            run.state.close()
        if self.errors:
            raise self.errors[0]

    def _merge(self, started) -> RunResult:
        """Put the parts together, in order."""
        cdef FullRun run
        cdef SegmentData segment
        cdef RunResult out, one
        results = [run.result() for run in self.runs]
        merged = self.runs[0].segments
        callback = self.params.new_segment_callback
        for one in results[1:]:
            for segment in one.segments:
                if merged:
                    clamp(segment, merged[len(merged) - 1].t1)
                merged.append(segment)
                if callback is not None:
                    callback([segment])
        out = results[0]
        out.segments = tuple(merged)
        out.windows = tuple([window for one in results for window in one.windows])
        out.vad_segments = tuple(self.speech)
        out.n_samples = self.n_samples
        out.timings = self._timings([one.timings for one in results], started)
        return out

    def _timings(self, list parts, started) -> Timings:
        """Counts of all parts together; times as the mean over the parts, since these ran side by side."""
        cdef Timings out = Timings.__new__(Timings), part
        out.load_ms = parts[0].load_ms
        for part in parts:
            out.mel_ms += part.mel_ms / len(parts)
            out.encode_ms += part.encode_ms / len(parts)
            out.cross_ms += part.cross_ms / len(parts)
            out.decode_ms += part.decode_ms / len(parts)
            out.batchd_ms += part.batchd_ms / len(parts)
            out.prompt_ms += part.prompt_ms / len(parts)
            out.sample_ms += part.sample_ms / len(parts)
            out.n_encode += part.n_encode
            out.n_decode += part.n_decode
            out.n_batchd += part.n_batchd
            out.n_prompt += part.n_prompt
            out.n_sample += part.n_sample
            out.n_fail_p += part.n_fail_p
            out.n_fail_h += part.n_fail_h
        out.total_ms = (now_us() - started) / 1e3
        return out


def full_parallel(Context ctx, State state, FullParams params, samples, n_processors=1) -> RunResult:
    """Recognise a recording in `n_processors` parts side by side; see `ParallelRun`.

    Raises
    ------
    AudioError, ParamsError, LanguageError
        Input that cannot be used.
    Aborted, ComputeError, ComputeMemoryError, StateError
        As for `full`; the first failure of any part.
    """
    return ParallelRun(ctx, state, params, samples, n_processors).run()
