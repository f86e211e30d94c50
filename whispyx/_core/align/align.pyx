"""Token times by attention: run a window's text through the decoder once more and see where the alignment heads look.

After openai/whisper (`timing.py`, `find_alignment`) and whisper.cpp 1.8.5
(`whisper_exp_compute_token_level_timestamps_dtw`).
"""

import logging
from operator import index

from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from whispyx._core.align.dtw cimport add_head, all_finite, row_starts
from whispyx._core.align.fit cimport Loudness
from whispyx._core.align.words cimport time_words
from whispyx._core.batch cimport Batch
from whispyx._core.decode cimport watch_batch
from whispyx._core.graph.decoder cimport MAX_HEADS, Head
from whispyx._core.results cimport SegmentData, TokenData
from whispyx._core.state cimport State
from whispyx._core.vocab cimport Vocab

from whispyx._core.align.heads import LAGS
from whispyx.errors import ParamsError, StateError

_logger = logging.getLogger("whispyx.core")

cdef enum:
    FRAMES_PER_WINDOW = 3000


cdef int n_heads_of(State state, Head * heads, int first) except -1:
    """Write up to MAX_HEADS of the model's alignment heads, from number `first` on, and return how many."""
    cdef tuple aheads = state.ctx.aheads
    cdef int n = min(<int>MAX_HEADS, <int>len(aheads) - first), i
    for i in range(n):
        heads[i].layer, heads[i].index = aheads[first + i]
    return n


cdef int watch(State state, list tokens, const Head * heads, int n_heads, int n_positions, float * out,
               int n_threads) except -1:
    """Decode tokens as a text of their own and write where heads look, (n_heads, n_tokens, n_positions)."""
    cdef Batch batch = state.batch
    cdef int i
    state.kv_self.clear()
    batch.clear()
    for i in range(len(tokens)):
        batch.add(tokens[i], i, 1, False)
    try:
        watch_batch(state, heads, n_heads, n_positions, out, n_threads)
    finally:
        state.kv_self.clear()
    return 0


cdef int window_costs(State state, list tokens, int n_positions, int n_frames, double * cost,
                      int n_threads) except -1:
    """Write what it costs to hear a token at one of the first n_frames positions, (n_tokens, n_frames).

    The heads' softmax sees n_positions. Return 0, or 1 when a weight is not finite.
    """
    cdef int n_tokens = len(tokens), n_all = len(state.ctx.aheads), n_heads, done = 0, i
    cdef size_t n = <size_t>n_tokens * n_positions
    cdef bint bad = False
    cdef Head heads[MAX_HEADS]
    # As much memory as this window needs: heads that do not fit one graph come in several runs.
    cdef float * weights = <float *>malloc(min(<int>MAX_HEADS, n_all) * n * sizeof(float))
    if weights == NULL:
        raise MemoryError
    try:
        memset(cost, 0, <size_t>n_tokens * n_frames * sizeof(double))
        while done < n_all and not bad:
            n_heads = n_heads_of(state, heads, done)
            watch(state, tokens, heads, n_heads, n_positions, weights, n_threads)
            with nogil:
                bad = not all_finite(weights, n_heads * n)
                if not bad:
                    for i in range(n_heads):
                        add_head(weights + i * n, n_tokens, n_frames, n_positions, n_all, cost)
            done += n_heads
    finally:
        free(weights)
    return bad


cdef int starts(const double * cost, int n_rows, int n_frames, int * first) except -1:
    cdef int status
    with nogil:
        status = row_starts(cost, n_rows, n_frames, first)
    if status != 0:
        raise MemoryError
    return 0


cdef list task_of(Vocab vocab, int lang_id, bint translate):
    """The tokens in front of the text, the one for "no timestamps" left out."""
    if not vocab.is_multilingual:
        return [vocab.sot]
    return [vocab.sot, vocab.lang_token(lang_id), vocab.translate if translate else vocab.transcribe]


cdef int align_window(State state, list segments, int seek, int n_frames, int lang_id, int n_threads,
                      bint translate=False, bint marks=True, Loudness loudness=None) except -1:
    """Fill t_dtw, t_dtw_start and t_dtw_end of the text tokens of a window's segments, and their words.

    Parameters
    ----------
    state
        Holds the encoded window. Its self-attention cache is empty afterwards.
    segments
        The window's segments in order.
    seek
        The window's first mel frame (10 ms): times are counted from the start of the recording.
    n_frames
        How many mel frames the text covers.
    lang_id, translate
        As the text was decoded. Models that know one language ignore both.
    marks
        Whether t_dtw is wanted. It needs a run of its own: whisper.cpp leaves the task token out, and its heads look at
        the whole window.
    loudness
        Of the sound that the window is part of, when words are wanted too.

    Times stay unknown (-1) when there is no text, no whole encoder position or, with a damaged model, no finite
    attention. Words are then placed by loudness and length alone.
    """
    cdef Vocab vocab = state.ctx.vocab
    cdef SegmentData segment
    cdef TokenData token
    cdef list found = [], ids = [], before, tokens
    cdef int i, n_text, n_positions, n_before
    cdef int * first = NULL
    cdef double * cost = NULL
    for segment in segments:
        for token in segment.tokens:
            if vocab.is_text(token.id):
                found.append(token)
                ids.append(token.id)
    if not state.ctx.aheads:
        raise StateError("alignment needs heads: load the model with some (aheads)")
    if state.encoded_ctx == 0:
        raise StateError("nothing has been encoded yet: call encode first")
    n_positions = min(n_frames, <int>FRAMES_PER_WINDOW, 2 * state.encoded_ctx) // 2
    before = task_of(vocab, lang_id, translate)
    n_before = len(before)
    n_text = min(<int>len(ids), state.hp.n_text_ctx - n_before - 2)
    if n_text < 1 or n_positions < 1:
        if loudness is not None:
            time_words(segments, vocab, NULL, 0, 1, seek, loudness, 0)
        return 0
    tokens = [*before, vocab.not_, *ids[:n_text], vocab.eot]
    try:
        first = <int *>malloc((n_text + 1) * sizeof(int))
        cost = <double *>malloc(len(tokens) * n_positions * sizeof(double))
        if first == NULL or cost == NULL:
            raise MemoryError
        if window_costs(state, tokens, n_positions, n_positions, cost, n_threads):
            _logger.warning("the alignment heads give no finite numbers, so tokens get no times")
            if loudness is not None:
                time_words(segments, vocab, NULL, 0, 1, seek, loudness, 0)
            return 0
        # Row i is the step that wrote token i.
        starts(cost + <size_t>n_before * n_positions, n_text + 1, n_positions, first)
        for i in range(n_text):
            token = found[i]
            token.t_dtw_start = seek + 2 * first[i]
            token.t_dtw_end = seek + 2 * first[i + 1]
        if loudness is not None:
            time_words(segments, vocab, cost + <size_t>n_before * n_positions, n_text, n_positions, seek, loudness,
                       LAGS.get(state.ctx.aheads, 0))
        if not marks:
            return 0
        if vocab.is_multilingual:
            n_before -= 1
            del tokens[n_before]
        if window_costs(state, tokens, state.encoded_ctx, n_positions, cost, n_threads):
            return 0
        starts(cost + <size_t>n_before * n_positions, n_text + 1, n_positions, first)
        for i in range(n_text):
            token = found[i]
            token.t_dtw = seek + 2 * first[i + 1]
    finally:
        free(first)
        free(cost)
    return 0


def attention_of(State state not None, tokens, int n_positions, int n_threads=1):
    """Decode tokens, as a text of their own, and return where the model's alignment heads look.

    Parameters
    ----------
    state
        Holds an encoded window. Its self-attention cache is empty afterwards.
    tokens
        1 to n_text_ctx token ids.
    n_positions
        How many encoder positions (20 ms) the softmax sees, from the window's start.

    Returns
    -------
    float32 (n_heads, n_tokens, n_positions)
        Each row has the sum 1.

    Raises
    ------
    ParamsError
        A token or a number out of range.
    StateError
        The model has no alignment heads, or nothing has been encoded.
    """
    cdef list ids = [index(token) for token in tokens]
    cdef Head heads[MAX_HEADS]
    cdef float[:, :, ::1] view
    cdef int done = 0, n
    state.enter()
    try:
        if not state.ctx.aheads:
            raise StateError("alignment needs heads: load the model with some (aheads)")
        if state.encoded_ctx == 0:
            raise StateError("nothing has been encoded yet: call encode first")
        if not 1 <= len(ids) <= state.hp.n_text_ctx:
            raise ParamsError(f"{len(ids)} tokens were given; 1 to {state.hp.n_text_ctx} fit the text context")
        for token in ids:
            if not 0 <= token < state.hp.n_vocab:
                raise ParamsError(f"token {token} is outside the vocabulary (0 to {state.hp.n_vocab - 1})")
        if not 1 <= n_positions <= state.encoded_ctx:
            raise ParamsError(f"n_positions is {n_positions}; 1 to {state.encoded_ctx} are encoded")
        out = np.empty((len(state.ctx.aheads), len(ids), n_positions), dtype=np.float32)
        view = out
        while done < view.shape[0]:
            n = n_heads_of(state, heads, done)
            watch(state, ids, heads, n, n_positions, &view[done, 0, 0], n_threads)
            done += n
        return out
    finally:
        state.leave()


def align(State state not None, segments, int seek, int n_frames, int lang_id=-1, int n_threads=1,
          bint translate=False, bint marks=True, samples=None, bint words=False) -> None:
    """Fill the times by attention of the text tokens of a window's segments, and words; see `align_window`.

    `samples` is the whole sound, float32 (n_samples,); it shows where words begin and end.

    Raises
    ------
    ParamsError
        A token that the model does not have.
    StateError
        The model has no alignment heads, or nothing has been encoded.
    """
    cdef list checked = []
    cdef SegmentData segment
    cdef TokenData token
    for segment in segments:
        for token in segment.tokens:
            state.ctx.vocab.text(token.id)
        checked.append(segment)
    state.enter()
    try:
        align_window(state, checked, seek, n_frames, lang_id, n_threads, translate, marks,
                     Loudness(samples) if words else None)
    finally:
        state.leave()
