"""Which language a recording is in: the model's own guess after the start-of-transcript token."""

import numpy as np

from whispyx._core.context cimport Context
from whispyx._core.decode cimport decode_batch
from whispyx._core.encode cimport encode_window
from whispyx._core.mel cimport MelSpectrogram
from whispyx._core.state cimport State
from whispyx._core.vocab cimport Vocab

from whispyx.errors import ComputeError, StateError


cdef object detect(State state, int seek, int n_threads, int first=0):
    """Encode the window at frame `seek` and return (language id, float32 probabilities (n_languages,)).

    `first` is the sequence to decode in. Only the model's own languages compete.
    An English-only model has nothing to detect: English, with certainty.
    """
    cdef Vocab vocab = state.ctx.vocab
    if state.mel is None or not 0 <= seek < state.mel.n_len_org:
        raise ComputeError("the language cannot be detected: there is no audio at this position", code=-3,
                           where="whisper_full")
    if not vocab.is_multilingual:
        certain = np.zeros(vocab.n_languages, dtype=np.float32)
        certain[0] = 1.0
        return 0, certain
    encode_window(state, seek, n_threads)
    state.forget_sequences(first, 1)
    state.batch.clear()
    state.batch.add(vocab.sot, 0, <unsigned long long>1 << first, True)
    decode_batch(state, n_threads)
    cdef const float[::1] row = <float[:vocab.n_vocab]>state.logit_rows
    first = vocab.sot + 1
    scores = np.array(row[first:first + vocab.n_languages], dtype=np.float64)
    scores = np.exp(scores - scores.max())
    probabilities = (scores / scores.sum()).astype(np.float32)
    return int(probabilities.argmax()), probabilities


cdef int check_pair(Context ctx, State state) except -1:
    if state.ctx is not ctx:
        raise StateError("the state was made from another model")
    return 0


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
