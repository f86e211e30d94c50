cdef class HParams:
    cdef readonly int n_vocab, n_audio_ctx, n_audio_state, n_audio_head, n_audio_layer
    cdef readonly int n_text_ctx, n_text_state, n_text_head, n_text_layer, n_mels
    cdef readonly int ftype         # weight type of the file, quantisation version taken off
    cdef readonly int qntvr         # quantisation version, 0 for files that are not quantised
    cdef readonly bint is_multilingual
    cdef readonly int n_languages
