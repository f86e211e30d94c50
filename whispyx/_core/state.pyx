"""Everything that changes while a job runs: devices' streams, schedulers, caches, mel, logits.

A State belongs to one job at a time and holds its Context's weights until it closes. Public calls check their
arguments before the first ggml call, because a failed ggml assertion ends the process.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport getpid

import numpy as np

from whispyx._core.abort cimport AbortPoll, on_abort
from whispyx._core.batch cimport Batch
from whispyx._core.clock cimport now_us
from whispyx._core.context cimport Context
from whispyx._core.decode cimport decode_batch, read_tokens
from whispyx._core.devices cimport Watch
from whispyx._core.encode cimport encode_window
from whispyx._core.external cimport open_external
from whispyx._core.fused cimport Fused
from whispyx._core.graph.conv cimport ConvGraph, build_conv
from whispyx._core.graph.cross cimport build_cross
from whispyx._core.graph.decoder cimport DecoderGraph, build_decoder
from whispyx._core.graph.encoder cimport build_encoder
from whispyx._core.handles cimport Backend, Meta, Sched, ThreadPool, no_room
from whispyx._core.inspect cimport tensor_of
from whispyx._core.kvcache cimport KvCache, keeps_caches
from whispyx._core.log cimport last_line
from whispyx._core.mel cimport MelSpectrogram
from whispyx._core.pace cimport at_work, job_begins, job_ends, share_of
from whispyx._core.prompt cimport History
from whispyx._ggml.ggml cimport (
    GGML_STATUS_ABORTED, GGML_STATUS_ALLOC_FAILED, GGML_STATUS_SUCCESS,
    GGML_TYPE_F16,
    GGML_TYPE_F32,
    ggml_cgraph,
    ggml_new_tensor_2d,
    ggml_status,
    ggml_tensor,
)
from whispyx._ggml.ggml_backend cimport (
    ggml_backend_graph_compute, ggml_backend_sched_alloc_graph, ggml_backend_sched_graph_compute,
    ggml_backend_sched_reserve,
)

from whispyx._core.cores import usable_cores
from whispyx._core.kvcache import pad256
from whispyx.constants import MAX_THREADS
from whispyx.errors import ComputeError, ComputeMemoryError, ParamsError, StateError
cdef enum:
    STEP_ROWS = 16      # of a batch whose threads meet so often that one which is not running holds up all
    USUAL_THREADS = 4   # working memory of this many is had from the beginning


cdef class State:
    """One job's working memory.

    Parameters
    ----------
    ctx
        The model.
    debug
        Keep the output of every encoder block readable (`tensor`), at the cost of memory.
    pad_kv
        Store encoder keys and values padded to a multiple of 256 rows, as GPU attention kernels want. None: only
        where the first device is a GPU.

    Raises
    ------
    StateError
        The model is closed.
    BackendError, ComputeMemoryError
        A device cannot be started, or has no room for the working memory.
    """

    def __init__(self, Context ctx not None, *, debug: bool = False, pad_kv: bool | None = None) -> None:
        cdef Backend backend
        if self.ctx is not None:
            raise StateError("the state is made already")
        ctx.check_open()
        self.process = getpid()
        self.ctx, self.hp = ctx, ctx.hparams
        self.flash, self.debug = ctx.flash_attn, bool(debug)
        self.abort, self.watch = AbortPoll(), Watch.of(ctx.device_list)
        self.history = History()
        self.backends = []
        for device in ctx.device_list:
            backend = Backend.create(device)
            if backend.set_abort_callback != NULL:
                backend.set_abort_callback(backend.ptr, on_abort, <void *>self.abort)
            self.backends.append(backend)
        self.weights = ctx.usable_weights()
        self.cpu = self.backends[len(self.backends) - 1]
        if self.weights is None:
            return

        # Caches lie where most of the work is done. An accelerator works on the memory of the CPU.
        self.main = self.cpu
        for backend in self.backends:
            if backend.device.kind != "ACCEL" and keeps_caches(backend.device, GGML_TYPE_F16, self.hp.n_text_state):
                self.main = backend
                break
        gpu = self.main.device.kind in ("GPU", "IGPU")
        self.kv_step = 256 if gpu else 32
        n_audio = pad256(self.hp.n_audio_ctx)
        self.kv_self = KvCache.create(self.main, GGML_TYPE_F16, self.hp.n_text_state, self.hp.n_text_layer,
                                      pad256(self.hp.n_text_ctx), "the self-attention cache")
        self.kv_self.n_decoders = 1
        self.batch = Batch(self.hp.n_text_ctx)
        self.slots = <int64_t *>malloc(self.hp.n_text_ctx * sizeof(int64_t))
        if self.slots == NULL:
            raise MemoryError
        if ctx.encoder is not None:
            self.external = open_external(ctx.encoder, self.hp, ctx.path, ctx.fingerprint)
        if self.weights.packed is not None:
            if self.debug:
                raise ParamsError("the blocks of the encoder can be read only with compute='exact'")
            self.fused = Fused.create(self.weights.packed, self.cpu)
            self.fused.reserve(min(USUAL_THREADS, usable_cores()))
            return
        self.kv_cross = KvCache.create(self.main, GGML_TYPE_F16, self.hp.n_text_state, self.hp.n_text_layer,
                                       n_audio, "the cross-attention cache")
        if self.flash and self.weights.has_encoder and (gpu if pad_kv is None else pad_kv):
            self.kv_pad = KvCache.create(self.main, GGML_TYPE_F16, self.hp.n_audio_state, 1, n_audio,
                                         "the encoder's pad cache")

        self.meta_conv = Meta.create(0, 64)
        self.meta_encode = Meta.create(0, 64 + 48 * self.hp.n_audio_layer)
        self.meta_cross = Meta.create(0, 16 + 16 * self.hp.n_text_layer)
        self.meta_decode = Meta.create(0, 128 + 64 * self.hp.n_text_layer)
        self.sched_conv = Sched.create(self.backends, 128)
        self.sched_encode = Sched.create(self.backends, 2 * (64 + 48 * self.hp.n_audio_layer))
        self.sched_cross = Sched.create(self.backends, 2 * (16 + 16 * self.hp.n_text_layer))
        self.sched_decode = Sched.create(self.backends, 2 * (128 + 64 * self.hp.n_text_layer))
        self.reserve()

    cdef int reserve(self) except -1:
        """Give every scheduler the memory of its largest graph, so that a job cannot run out of it half-way."""
        cdef int n_ctx = self.hp.n_audio_ctx
        cdef ConvGraph conv
        cdef ggml_tensor * stand_in
        if self.weights.has_encoder:
            conv = build_conv(self.meta_conv.ptr, self.weights, n_ctx, self.hp.n_mels)
            self._reserve_one(self.sched_conv, conv.graph, "the convolutions")
            stand_in = ggml_new_tensor_2d(self.meta_encode.ptr, GGML_TYPE_F32, self.hp.n_audio_state, n_ctx)
            self.encoder = build_encoder(self.meta_encode.ptr, self.weights, stand_in, self.hp.n_audio_layer,
                                         self.hp.n_audio_head, self.flash, self.kv_pad, self.debug)
            self._reserve_one(self.sched_encode, self.encoder.graph, "the encoder")
        stand_in = ggml_new_tensor_2d(self.meta_cross.ptr, GGML_TYPE_F32, self.hp.n_audio_state, n_ctx)
        self._reserve_one(self.sched_cross, build_cross(
            self.meta_cross.ptr, self.weights, stand_in, self.kv_cross, self.hp.n_text_layer, self.hp.n_text_head,
            self.flash), "the cross-attention cache's graph")
        self._reserve_decode()
        return 0

    cdef int _reserve_decode(self) except -1:
        if self.fused is not None:
            return 0
        self.meta_decode.reset()
        # Logits are wanted for two rows of a prompt, or one row per decoder.
        cdef DecoderGraph decoder = build_decoder(
            self.meta_decode.ptr, self.weights, self.kv_self, self.kv_cross, self.hp.n_text_ctx,
            max(2, self.kv_self.n_decoders), self.kv_self.n_cells, self.hp.n_audio_ctx, self.hp.n_text_layer,
            self.hp.n_text_head, self.flash)
        return self._reserve_one(self.sched_decode, decoder.graph, "the decoder")

    cdef int _reserve_one(self, Sched sched, ggml_cgraph * graph, str what) except -1:
        cdef bint ok
        sched.check(graph)
        with nogil:
            ok = ggml_backend_sched_reserve(sched.ptr, graph)
        return 0 if ok else no_room(sched, self.watch, what)

    cdef void forget_sequences(self, int first, int n) noexcept:
        """Empty the self cache, or where runs share it n sequences from `first` on."""
        cdef int i
        if not self.shared:
            self.kv_self.clear()
            return
        for i in range(first, first + n):
            self.kv_self.seq_rm(i, 0)

    cdef int need_decoders(self, int n, bint keep=False) except -1:
        """Make the self cache large enough for n decoders that run side by side.

        Its contents are lost when it grows, unless they shall be kept and lie in memory of the CPU. The old cache stays
        in place when there is no memory. Two spare shares are for what beams leave behind while they are rearranged.
        """
        cdef KvCache grown
        if n <= self.kv_self.n_decoders:
            return 0
        grown = KvCache.create(self.main, GGML_TYPE_F16, self.hp.n_text_state, self.hp.n_text_layer,
                               pad256(self.hp.n_text_ctx) * (n + 2), f"the self-attention cache of {n} decoders",
                               self.fused is None)
        grown.n_decoders = n
        if not (keep and grown.adopt(self.kv_self)):
            self.n_lost += 1
        self.kv_self.close()
        self.kv_self = grown
        try:
            return self._reserve_decode()
        except ComputeMemoryError:
            grown.n_decoders = 0    # the graph has lost the memory that it had: whoever comes next asks for it anew
            raise

    cdef int check_made(self) except -1:
        if self.abort is None:
            raise StateError("the state was never made: call State(context) or Context.new_state")
        return 0

    cdef int check_process(self) except -1:
        if self.process != getpid():
            raise StateError("the state was made before the process forked, and its threads are not here")
        return 0

    cdef int enter(self) except -1:
        self.check_made()
        if self.closed:
            raise StateError("the state is closed")
        if self.busy:
            raise StateError("the state is in use: one job at a time; make a state for each thread")
        self.check_process()
        self.busy = True
        job_begins()
        self.n_uses += 1
        self.abort.reset()
        return 0

    cdef void leave(self) noexcept:
        self.busy = False
        job_ends()

    cdef int set_threads(self, int n_threads) except -1:
        cdef Backend backend
        if not 1 <= n_threads <= MAX_THREADS:
            raise ParamsError(f"n_threads is {n_threads}; 1 to {MAX_THREADS} are possible")
        self.check_process()
        self.weights.before_reading()   # and the pool's threads do as this one does
        # Every worker of a pool is woken for every graph, so a pool that is too large is as wrong as one too small.
        if self.pool is None or self.pool.n_threads != n_threads:
            if self.pool is not None:
                self.pool.close()
                self.pool = None
            self.pool = ThreadPool.create(self.cpu, n_threads)
        for backend in self.backends:
            if backend.set_n_threads != NULL:
                backend.set_n_threads(backend.ptr, n_threads)
        return 0

    cdef int alloc(self, Sched sched, ggml_cgraph * graph, str what) except -1:
        cdef bint ok
        self.watch.check()
        with nogil:
            ok = ggml_backend_sched_alloc_graph(sched.ptr, graph)
        if not ok:
            no_room(sched, self.watch, what)
        if len(self.backends) > 1 and what not in self.ctx.placement_of:
            self.ctx.placement_of[what] = sched.placement(graph)
        return 0

    cdef int compute(self, Sched sched, ggml_cgraph * graph, int n_threads) except -1:
        cdef ggml_status status
        self.set_threads(n_threads)
        with nogil:     # while it computes only a CPU asks
            status = GGML_STATUS_ABORTED if self.abort.stopped() else ggml_backend_sched_graph_compute(sched.ptr, graph)
        return self._finished(status)

    cdef int compute_fused(self, ggml_cgraph * graph, int n_threads) except -1:
        """Run one of the graphs of the kernels, which are there once and for all."""
        cdef ggml_status status
        cdef bint step = graph == self.fused.decode_graph and self.fused.decode_job.n_rows <= STEP_ROWS
        cdef int used = share_of(n_threads), slept = self.fused.n_slept()
        self.set_threads(n_threads)
        used = self.fused.pace.threads(used) if step else used
        self.cpu.set_n_threads(self.cpu.ptr, used)
        at_work(used)
        with nogil:
            status = GGML_STATUS_ABORTED if self.abort.stopped() else ggml_backend_graph_compute(self.cpu.ptr, graph)
        at_work(-used)
        if step:
            self.fused.pace.ran(used, self.fused.n_slept() - slept)
        return self._finished(status)

    cdef int _finished(self, ggml_status status) except -1:
        # Asks the devices, too: the weights lie on the same ones (with our kernels there are none to ask).
        self.weights.check()
        if status == GGML_STATUS_SUCCESS:
            return 0
        if status == GGML_STATUS_ABORTED:
            self.abort.raise_pending()
        if status == GGML_STATUS_ALLOC_FAILED:
            raise ComputeMemoryError("a device ran out of memory while computing", log=last_line())
        raise ComputeError(f"{' or '.join(self.ctx.devices)} failed (ggml status {<int>status})", log=last_line())

    # Stages as calls. Each enters and leaves the state, so none can run inside another one or inside a whole job.

    def pcm_to_mel(self, samples, int n_threads=1) -> None:
        """Compute the mel spectrogram of samples, float32 (n_samples,), and keep it."""
        cdef int64_t start = now_us()
        self.enter()
        try:
            self.mel = MelSpectrogram.of_samples(samples, self.ctx.filters, n_threads)
            self.clocks.mel_us += now_us() - start
        finally:
            self.leave()

    def set_mel(self, mel) -> None:
        """Keep a ready spectrogram, float32 (n_mels, n_frames)."""
        self.enter()
        try:
            self.mel = MelSpectrogram.of_mel(mel, self.hp.n_mels)
        finally:
            self.leave()

    def drop_mel(self) -> None:
        """Forget the spectrogram: 320 bytes per 10 ms with 80 bands, which an idle state need not keep."""
        self.enter()
        self.mel = None
        self.leave()

    def set_encoder(self, encoder) -> None:
        """Let something else than the model compute the encoder from the next window on; None: the model again.

        Parameters
        ----------
        encoder
            A callable that turns a mel spectrogram, float32 (n_mels, 2 * n_ctx), into float32 (n_ctx, n_audio_state),
            or an object that opens sessions (see `whispyx.encoders`).

        Raises
        ------
        ParamsError
            It is none of these, or does not fit the model.
        StateError
            The model has no weights, or None was given and it was loaded without those of its encoder.
        """
        self.enter()
        try:
            if self.weights is None:
                raise StateError("the model file holds no tensors: there is nothing to encode for")
            if encoder is None and not self.weights.has_encoder:
                raise StateError("the model was loaded without its encoder: it cannot do without the one it was given")
            taken = None if encoder is None else open_external(encoder, self.hp, self.ctx.path, self.ctx.fingerprint)
            if self.external is not None:
                self.external.close()
            self.external = taken
        finally:
            self.leave()

    @property
    def external_encoder(self):
        """What encodes instead of the model, as it was given; None: the model."""
        return None if self.external is None else self.external.given

    def encode(self, int offset=0, int n_threads=1, audio_ctx: int | None = None) -> None:
        """Encode the window that starts at mel frame `offset` and fill the cross-attention cache.

        `audio_ctx` is how many encoder positions to use (2 mel frames each); None keeps the last choice, 0 is all.
        """
        self.enter()
        try:
            if audio_ctx is not None:
                if not 0 <= audio_ctx <= self.hp.n_audio_ctx:
                    raise ParamsError(f"audio_ctx is {audio_ctx}; 0 to {self.hp.n_audio_ctx} are possible")
                self.audio_ctx = audio_ctx
            encode_window(self, offset, n_threads)
        finally:
            self.leave()

    def decode(self, tokens, int n_past=0, int n_threads=1, all_logits: bool = False) -> None:
        """Run tokens through the decoder as sequence 0, at positions n_past, n_past + 1, …

        Cached positions from n_past on are dropped first. Logits are kept for the last token, or for all.
        """
        self.enter()
        try:
            read_tokens(self, tokens, n_past, bool(all_logits))
            self.kv_self.seq_rm(0, n_past)
            decode_batch(self, n_threads)
        finally:
            self.leave()

    def logits(self):
        """Return the logits of the last decode, float32 (n_rows, n_vocab), as a copy."""
        return self.logits_view().copy()

    def logits_view(self):
        """Return the logits of the last decode, float32 (n_rows, n_vocab), without copying them.

        What is written to them lasts until the next decode, which writes over them or leaves them for new ones.
        """
        self.check_made()
        if self.n_logits == 0:
            return np.empty((0, self.hp.n_vocab), dtype=np.float32)
        rows = self.logit_store[:<size_t>self.n_logits * self.hp.n_vocab]
        return rows.reshape(self.n_logits, self.hp.n_vocab)

    def tensor(self, name: str):
        """Return an intermediate result of the last encode, for tests; see `whispyx._core.inspect`."""
        return tensor_of(self, name)

    @property
    def lost(self) -> bool:
        """Whether what a device kept for it is lost, or its model's file was written to: it can only be closed."""
        return self.watch is not None and (self.watch.broken() or not (self.weights is None or self.weights.intact()))

    @property
    def n_len(self) -> int:
        """Mel frames of the recording, its padding left out; 0 before the first recording."""
        return 0 if self.mel is None else self.mel.n_len_org

    @property
    def mel_frames(self):
        """The whole spectrogram, float32 (n_mels, n_frames) with padding, as a copy; None before the first one."""
        return None if self.mel is None else self.mel.array()

    @property
    def n_decoders(self) -> int:
        """How many decoders the self-attention cache has room for."""
        return 0 if self.kv_self is None else self.kv_self.n_decoders

    @property
    def kv_cells(self) -> tuple[int, int]:
        """Cells of the self-attention cache and how many of them are attended."""
        if self.kv_self is None:
            return 0, 0
        return self.kv_self.n_cells, self.kv_self.n_used

    @property
    def compute_bytes(self) -> int:
        """Bytes of device memory for graphs and caches."""
        cdef Sched sched
        cdef KvCache cache
        total = 0
        for sched in (self.sched_conv, self.sched_encode, self.sched_cross, self.sched_decode):
            if sched is not None:
                total += sched.buffer_size()
        for cache in (self.kv_self, self.kv_cross, self.kv_pad):
            if cache is not None:
                total += cache.n_bytes()
        if self.fused is not None:
            total += self.fused.n_bytes()
        return total

    def request_abort(self) -> None:
        """Stop the running job; may be called from any thread."""
        self.check_made()
        self.abort.request()

    def close(self) -> None:
        """Free the working memory. Closing twice is fine; closing a state in use raises StateError."""
        cdef Backend backend
        cdef Sched sched
        cdef Meta meta
        cdef KvCache cache
        if self.busy:
            raise StateError("the state is in use and cannot be closed")
        self.closed = True
        for sched in (self.sched_conv, self.sched_encode, self.sched_cross, self.sched_decode):
            if sched is not None:
                sched.close()
        if self.fused is not None:
            self.fused.close()
        for meta in (self.meta_conv, self.meta_encode, self.meta_cross, self.meta_decode):
            if meta is not None:
                meta.close()
        for cache in (self.kv_self, self.kv_cross, self.kv_pad):
            if cache is not None:
                cache.close()
        if self.pool is not None:
            self.pool.close()
        for backend in self.backends or ():
            backend.close()
        if self.voice is not None:
            self.voice.close()
            self.voice = None
        if self.external is not None:
            self.external.close()
            self.external = self.external_out = None
        self.weights = self.mel = None
        self.encoded_ctx = self.n_logits = 0
        self.logit_store = None
        self._free()

    cdef void _free(self) noexcept:
        free(self.slots)
        free(self.mask)
        self.slots, self.mask, self.logit_rows = NULL, NULL, NULL
        self.mask_size = self.logits_size = 0

    def __dealloc__(self):
        self._free()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
