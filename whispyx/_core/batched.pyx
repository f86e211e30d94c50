"""Many recordings, or regions of one, recognised side by side on one State.

Each region is a whole run of its own (window, temperatures, thresholds, end) without the text of the others. Their
decoders' tokens go through the decoder in one batch, so that the weights are read once for all of them; a region that
has ended makes room for the next. Without our kernels, whose caches alone hold several windows, one region follows the
other.
"""

from operator import index

from libc.string cimport memset

from whispyx._core.context cimport Context
from whispyx._core.decode cimport decode_batch
from whispyx._core.fused cimport MAX_WINDOWS
from whispyx._core.lang cimport check_pair
from whispyx._core.mel cimport MelSpectrogram
from whispyx._core.params cimport FullParams
from whispyx._core.prompt cimport History
from whispyx._core.run cimport DONE, PROMPT, STEP, FullRun
from whispyx._core.state cimport Clocks, State

from whispyx._core.attempt import n_decoders
from whispyx.errors import AudioError, ComputeMemoryError, ParamsError

DEFAULT_TOGETHER = 8

# What concerns one recording as a whole, or the cache that several share.
_REFUSED = ("vad", "dtw", "word_timestamps", "detect_language", "new_segment_callback", "progress_callback",
            "encoder_begin_callback", "print_realtime")


cdef class Lane:
    """One region on its way, and what is the state's while it is its turn."""
    cdef FullRun run
    cdef object number          # of the region
    cdef int slot               # of the kernels' windows
    cdef MelSpectrogram mel
    cdef History history


cdef class BatchRun:
    """A recognition of several regions side by side.

    Parameters
    ----------
    ctx, state, params
        As for `FullRun`. Every region begins without earlier text, as with `no_context`; what concerns one recording
        as a whole (vad, word times by attention, callbacks for segments and progress) is not possible.
    regions
        float32 (n_samples,) arrays, 16 kHz mono, each of any length.
    together : int
        Most regions that are decoded side by side.

    Raises
    ------
    ParamsError
        A parameter that is not possible here, or `together` is not 1 or more.
    StateError
        The state is of another model.
    """

    cdef Context ctx
    cdef State state
    cdef FullParams params
    cdef list regions, waiting, lanes, results, free_slots
    cdef int together, n_each, n_threads

    def __init__(self, Context ctx not None, State state not None, FullParams params not None, regions,
                 together=DEFAULT_TOGETHER) -> None:
        ctx.check_open()
        check_pair(ctx, state)
        for name in _REFUSED:
            if params.get(name):
                raise ParamsError(f"{name} is not possible for regions side by side")
        self.ctx, self.state, self.params = ctx, state, params.copy()
        self.regions = list(regions)
        for number, region in enumerate(self.regions):
            if region is None:
                raise AudioError(f"region {number} is None: samples are needed")
        self.n_each = n_decoders(self.params)
        wanted = index(together)
        if wanted < 1:
            raise ParamsError(f"together is {wanted}; it must be at least 1")
        self.together = min(wanted, MAX_WINDOWS // self.n_each, len(self.regions) or 1)
        if state.fused is None:
            self.together = 1
        self.n_threads = self.params.get("n_threads")
        self.results = [None] * len(self.regions)
        self.waiting = list(range(len(self.regions)))
        self.lanes = []
        self.free_slots = list(range(self.together - 1, -1, -1))

    @property
    def n_together(self) -> int:
        """How many regions are decoded side by side at most."""
        return self.together

    def run(self) -> list:
        """Recognise all regions and return a RunResult for each, in order. Times count from the region's start.

        Raises
        ------
        AudioError, LanguageError, ParamsError
            A region or a parameter that cannot be used.
        Aborted, ComputeError, ComputeMemoryError, StateError
            As for `full`; `partial` is a list with what was recognised of every region so far, None for none.
        """
        cdef State state = self.state
        cdef MelSpectrogram mel
        cdef History history
        cdef int audio_ctx
        state.enter()
        mel, history, audio_ctx = state.mel, state.history, state.audio_ctx
        try:
            state.abort.begin(self.params.get("abort_callback"))
            memset(&state.clocks, 0, sizeof(Clocks))
            state.shared = True
            self._prepare()
            while self.waiting or self.lanes:
                self._admit()
                self._round()
        except BaseException as error:
            try:
                error.partial = self._partial()
            except AttributeError:
                pass    # an exception of the caller's own that takes no attributes
            raise
        finally:
            # What lanes have left behind is nobody's: neither text, nor windows, nor cells.
            state.shared = False
            state.window = 0
            state.mel, state.history, state.audio_ctx = mel, history, audio_ctx
            state.encoded_ctx = state.n_logits = 0
            if state.fused is not None:
                state.fused.one_window()
            if state.kv_self is not None:
                state.kv_self.clear()
            state.abort.callback = None
            state.leave()
        return list(self.results)

    cdef int _prepare(self) except -1:
        cdef int seq
        if self.state.weights is None:
            return 0
        if self.state.fused is not None:
            self.state.fused.need_windows(self.together)
            for seq in range(self.together * self.n_each):
                self.state.fused.window_of[seq] = seq // self.n_each
        try:
            self.state.need_decoders(self.together * self.n_each)
        except ComputeMemoryError as error:
            error.code, error.where = -7, "whisper_full"
            raise
        self.state.kv_self.clear()
        return 0

    cdef int _admit(self) except -1:
        """Let waiting regions take the places that are free."""
        cdef Lane lane
        while self.waiting and self.free_slots:
            number = self.waiting.pop(0)
            lane = Lane.__new__(Lane)
            lane.number, lane.slot = number, self.free_slots.pop()
            lane.history = History()
            lane.run = FullRun(self.ctx, self.state, self.params, self.regions[number])
            lane.run.first = lane.slot * self.n_each
            self.lanes.append(lane)
        return 0

    cdef void _enter(self, Lane lane) noexcept:
        """Make the state that of a lane."""
        self.state.mel, self.state.history, self.state.window = lane.mel, lane.history, lane.slot

    cdef int _round(self) except -1:
        """Bring every lane to its next tokens, decode all of them together and let every lane read its logits."""
        cdef Lane lane
        cdef list riders = []
        cdef int row = 0, n
        for lane in self.lanes:
            # Before the first text a lane may use the batch for itself, to hear the language.
            self._enter(lane)
            while lane.run.next != PROMPT and lane.run.next != STEP and lane.run.next != DONE:
                lane.run.advance_phase()
            lane.mel = self.state.mel
        self.state.batch.clear()
        for lane in list(self.lanes):
            self._enter(lane)
            n = 0
            while n == 0 and lane.run.next != DONE:
                if lane.run.next == PROMPT or lane.run.next == STEP:
                    if not self._has_room(lane):
                        break
                    n = lane.run.fill()
                else:
                    lane.run.advance_phase()
            if n > 0:
                riders.append(lane)
            elif lane.run.next == DONE:
                self.results[lane.number] = lane.run.result()
                self.lanes.remove(lane)
                self.free_slots.append(lane.slot)
                self.state.forget_sequences(lane.run.first, self.n_each)
        if not riders:
            return 0
        decode_batch(self.state, self.n_threads)
        for lane in riders:
            self._enter(lane)
            row = lane.run.take(row)
        return 0

    cdef bint _has_room(self, Lane lane):
        """Whether the batch can hold what a lane may add; the first one always fits."""
        cdef int most = self.ctx.hparams.n_text_ctx // 2 + 8 if lane.run.next == PROMPT else self.n_each
        return self.state.batch.n_tokens == 0 or self.state.batch.n_tokens + most <= self.state.batch.capacity

    cdef list _partial(self):
        cdef Lane lane
        found = list(self.results)
        for lane in self.lanes:
            found[lane.number] = lane.run.result()
        return found


def full_batch(Context ctx, State state, FullParams params, regions, together=DEFAULT_TOGETHER) -> list:
    """Recognise several regions side by side; see `BatchRun`."""
    return BatchRun(ctx, state, params, regions, together).run()
