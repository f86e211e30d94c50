from libc.stdint cimport int64_t, uint16_t

from whispyx._core.abort cimport AbortPoll
from whispyx._core.batch cimport Batch
from whispyx._core.context cimport Context
from whispyx._core.devices cimport Watch
from whispyx._core.external cimport External
from whispyx._core.fused cimport Fused
from whispyx._core.graph.encoder cimport EncoderGraph
from whispyx._core.handles cimport Backend, Meta, Sched, ThreadPool
from whispyx._core.hparams cimport HParams
from whispyx._core.kvcache cimport KvCache
from whispyx._core.mel cimport MelSpectrogram
from whispyx._core.prompt cimport History
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport ggml_cgraph, ggml_status, ggml_tensor


cdef struct Clocks:
    int64_t mel_us, encode_us, cross_us, decode_us, batchd_us, prompt_us, sample_us
    int n_encode, n_decode, n_batchd, n_prompt, n_sample, n_fail_p, n_fail_h


cdef class State:
    cdef readonly Context ctx
    cdef HParams hp
    cdef Weights weights
    cdef list backends
    cdef Watch watch                    # of what lies in the devices' memory
    cdef Backend cpu
    cdef Backend main                   # where the caches lie: the first device that is no accelerator
    cdef ThreadPool pool
    cdef AbortPoll abort
    cdef bint flash, debug, busy
    cdef int process                    # the one it was made in
    cdef long long n_uses               # times it was entered
    cdef readonly bint closed

    cdef Fused fused                    # what computes on our kernels; None: the graphs below
    cdef Sched sched_conv, sched_encode, sched_cross, sched_decode
    cdef Meta meta_conv, meta_encode, meta_cross, meta_decode
    cdef ggml_tensor * conv_out         # (n_ctx, n_state), valid after encode
    cdef EncoderGraph encoder
    cdef External external              # what encodes instead of the graph, or None
    cdef object external_out            # its last output (n_ctx, n_state)
    cdef KvCache kv_self, kv_cross, kv_pad
    cdef int kv_step                    # the number of cells attended is a multiple of this

    cdef MelSpectrogram mel             # None: nothing heard yet
    cdef readonly int audio_ctx         # encoder positions of the next encode
    cdef int encoded_ctx                # encoder positions in the cross cache; 0: none
    cdef int window                     # which of the kernels' windows is worked on; 0 unless several are side by side
    cdef bint shared                    # several runs are under way: a run forgets only what is its own
    cdef long long n_lost               # how often the contents of the self cache were lost
    cdef Batch batch
    cdef int64_t * slots                # (n_text_ctx,) cells of the batch
    cdef uint16_t * mask                # (n_text_ctx, n_cells) f16
    cdef size_t mask_size
    cdef float * logit_rows             # (n_outputs, n_vocab) of the last decode; the memory of logit_store
    cdef object logit_store
    cdef size_t logits_size
    cdef int n_logits                   # rows in logit_rows

    cdef History history                # text of earlier windows and runs
    cdef Clocks clocks
    cdef object voice                   # VadModel of the last run that used one, kept for the next
    cdef object voice_key               # which file that was

    cdef int check_made(self) except -1
    cdef int check_process(self) except -1
    cdef int enter(self) except -1
    cdef void leave(self) noexcept
    cdef int set_threads(self, int n_threads) except -1
    cdef int compute(self, Sched sched, ggml_cgraph * graph, int n_threads) except -1
    cdef int compute_fused(self, ggml_cgraph * graph, int n_threads) except -1
    cdef int _finished(self, ggml_status status) except -1
    cdef int alloc(self, Sched sched, ggml_cgraph * graph, str what) except -1
    cdef int reserve(self) except -1
    cdef int need_decoders(self, int n, bint keep=*) except -1
    cdef void forget_sequences(self, int first, int n) noexcept
    cdef int _reserve_decode(self) except -1
    cdef int _reserve_one(self, Sched sched, ggml_cgraph * graph, str what) except -1
    cdef void _free(self) noexcept
