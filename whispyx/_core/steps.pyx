"""Single stages of decoding as calls: the building blocks of a decoder of one's own.

A state holds up to eight sequences that share one window of audio. `prefill` puts a prompt into one, `seq_cp` lets
another one share it, `step` decodes one token of each of several sequences in one batch, `seq_rm` forgets. Every call
checks its arguments first and leaves the cache as it was when it fails.
"""

from operator import index

import numpy as np

from whispyx._core.clock cimport now_us
from whispyx._core.decode cimport decode_batch
from whispyx._core.encode cimport cross_of
from whispyx._core.report cimport timings_of
from whispyx._core.state cimport State

from whispyx.constants import MAX_DECODERS
from whispyx.errors import ParamsError, StateError


cdef int check_seq(State state, object seq) except -1:
    cdef object number = index(seq)
    if state.kv_self is None:
        raise StateError("the model file holds no tensors: there is nothing to decode with")
    if state.kv_self.n_decoders < 1:
        state.need_decoders(1)      # an earlier job ran out of memory
    if not 0 <= number < state.kv_self.n_decoders:
        raise ParamsError(f"sequence {number} is not there; the state has room for {state.kv_self.n_decoders} "
                          f"(reserve makes room for up to {MAX_DECODERS})")
    return number


cdef int next_pos(State state, int seq) noexcept:
    """Position of the next token of a sequence: one past its last, 0 when it is empty."""
    cdef int i, last = -1
    for i in range(state.kv_self.n_used):
        if state.kv_self.cells[i].seqs >> seq & 1:
            last = max(last, state.kv_self.cells[i].pos)
    return last + 1


cdef int put(State state, object token, int pos, int seq, bint wants_logits) except -1:
    cdef object number = index(token)
    if not 0 <= number < state.hp.n_vocab:
        raise ParamsError(f"token {number} is outside the vocabulary (0 to {state.hp.n_vocab - 1})")
    if pos >= state.hp.n_text_ctx:
        raise ParamsError(f"sequence {seq} is full: the text context has {state.hp.n_text_ctx} tokens")
    state.batch.add(number, pos, <unsigned long long>1 << seq, wants_logits)
    return 0


def reserve(State state not None, n_sequences) -> None:
    """Make room for n_sequences sequences, 1 to 8. When the cache has to grow, all sequences are forgotten.

    Raises
    ------
    ParamsError
        A count that is not possible.
    ComputeMemoryError
        There is no memory; the old cache stays.
    """
    n = index(n_sequences)
    if not 1 <= n <= MAX_DECODERS:
        raise ParamsError(f"{n} sequences were asked for; 1 to {MAX_DECODERS} are possible")
    state.enter()
    try:
        if state.kv_self is not None:
            state.need_decoders(n)
    finally:
        state.leave()


def prefill(State state not None, tokens, seq=0, n_threads=1, all_logits=False):
    """Run a prompt through the decoder behind what a sequence holds already.

    Parameters
    ----------
    state
        A state in which a window has been encoded.
    tokens
        Token ids, at least one.
    seq : int
        The sequence that gets them.
    n_threads : int
        Threads to compute with.
    all_logits : bool
        Whether to return the logits of every token instead of the last one's.

    Returns
    -------
    float32 array (1, n_vocab), or (n_tokens, n_vocab)

    Raises
    ------
    ParamsError
        A token outside the vocabulary, no room in the text context, a sequence that is not there.
    StateError
        Nothing has been encoded, or the state is in use or closed.
    ComputeError, ComputeMemoryError, Aborted
        The computation failed or was stopped; the sequence holds what it held before.
    """
    cdef list ids = list(tokens)
    cdef int i, pos, where, n = len(ids)
    state.enter()
    try:
        where = check_seq(state, seq)
        pos = next_pos(state, where)
        if not 1 <= n <= state.hp.n_text_ctx - pos:
            raise ParamsError(f"{n} tokens were given; the sequence has room for {state.hp.n_text_ctx - pos}")
        state.batch.clear()
        for i in range(n):
            put(state, ids[i], pos + i, where, all_logits or i == n - 1)
        decode_batch(state, n_threads)
    finally:
        state.leave()
    return state.logits()


def step(State state not None, tokens, seqs=(0,), n_threads=1):
    """Decode one more token of each of several sequences, all in one batch.

    Parameters
    ----------
    state
        A state in which a window has been encoded.
    tokens
        Token ids, one per sequence.
    seqs
        The sequences, all different. A finished one is simply left out.
    n_threads : int
        Threads to compute with.

    Returns
    -------
    float32 array (len(seqs), n_vocab)
        Logits of the token after each, in the order of `seqs`.

    Raises
    ------
    ParamsError, StateError, ComputeError, ComputeMemoryError, Aborted
        As for `prefill`.
    """
    cdef list ids = list(tokens), where = list(seqs)
    cdef int i, seq
    if not ids or len(ids) != len(where):
        raise ParamsError(f"{len(ids)} tokens were given for {len(where)} sequences; one each is needed")
    state.enter()
    try:
        where = [check_seq(state, seq) for seq in where]
        if len(set(where)) != len(where):
            raise ParamsError("a sequence is named twice")
        state.batch.clear()
        for i in range(len(ids)):
            seq = where[i]
            put(state, ids[i], next_pos(state, seq), seq, True)
        decode_batch(state, n_threads)
    finally:
        state.leave()
    return state.logits()


def seq_cp(State state not None, source, dest) -> None:
    """Let sequence `dest` hold what `source` holds, without a copy. What `dest` held before is forgotten."""
    cdef int a, b
    state.enter()
    try:
        a, b = check_seq(state, source), check_seq(state, dest)
        if a != b:
            state.kv_self.seq_rm(b, 0)
            state.kv_self.seq_cp(a, b)
    finally:
        state.leave()


def seq_rm(State state not None, seq, pos=0) -> None:
    """Forget the tokens of a sequence from position `pos` on."""
    cdef int where
    first = index(pos)
    if not 0 <= first < 2**31:
        raise ParamsError(f"position {first} is not possible")
    state.enter()
    try:
        where = check_seq(state, seq)
        state.kv_self.seq_rm(where, first)
    finally:
        state.leave()


def seq_len(State state not None, seq=0) -> int:
    """Return how many positions of a sequence are taken."""
    state.enter()
    try:
        return next_pos(state, check_seq(state, seq))
    finally:
        state.leave()


def encoder_output(State state not None):
    """Return the encoder's output for the last window, float32 (n_audio_ctx, n_state), as a copy."""
    state.enter()
    try:
        return state.tensor("encoder")
    finally:
        state.leave()


def set_encoder_output(State state not None, output, n_threads=1) -> None:
    """Give the decoder an encoder output that was computed elsewhere, by another state or another program.

    Parameters
    ----------
    state
        The state whose cross-attention cache is filled.
    output
        float32 (n_ctx, n_state), n_ctx from 1 to the model's n_audio_ctx, every value finite.
    n_threads : int
        Threads to compute with.

    Raises
    ------
    ParamsError
        Another shape, dtype or a value that is not finite.
    ComputeError, ComputeMemoryError
        The computation failed; nothing can be decoded then.
    """
    cdef const float[:, ::1] view
    array = np.asarray(output)
    state.enter()
    try:
        if state.kv_self is None:
            raise StateError("the model file holds no tensors: there is nothing to decode with")
        if array.dtype != np.float32 or array.ndim != 2 or array.shape[1] != state.hp.n_audio_state or not (
                1 <= array.shape[0] <= state.hp.n_audio_ctx):
            raise ParamsError(f"an encoder output is float32 (1 to {state.hp.n_audio_ctx}, {state.hp.n_audio_state}); "
                              f"got {array.dtype} {array.shape}")
        if not np.isfinite(array).all():
            raise ParamsError("an encoder output must be finite")
        view = np.ascontiguousarray(array)
        cross_of(state, view, n_threads)
    finally:
        state.leave()


def timings(State state not None):
    """Return the times of all stages of a state since it was made or its last whole run began."""
    state.check_made()
    return timings_of(state, now_us())


def decoder_spent(State state not None) -> tuple[float, int]:
    """Return the milliseconds inside the decoder's operations since a state was made, and how often the decoder ran.

    Both are 0 where our own kernels do not compute.
    """
    if state.fused is None:
        return 0.0, 0
    return state.fused.decoder_spent.us / 1e3, state.fused.decoder_spent.n_runs
