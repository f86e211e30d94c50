from whispyx._core.kernels cimport wx_kernels


cdef class Filters:
    cdef readonly int n_mels, n_fft
    cdef float[:, ::1] weights        # (n_mels, n_fft)
    # Each band weighs a short run of bins; the rest of its row is zero.
    cdef int[::1] first, last
    cdef const wx_kernels * table     # those that there were when a model was loaded, or NULL


cdef class MelSpectrogram:
    cdef float[:, ::1] data           # (n_mels, n_stored)
    cdef readonly int n_mels
    cdef readonly int n_stored        # frames kept in data
    cdef readonly int n_len           # frames of the recording with its 30 s of padding
    cdef readonly int n_len_org       # frames of the recording itself
    cdef readonly int n_end           # where the recording ends, in frames, rounded up; n_len_org may be one less
    cdef readonly float pad_value     # value of frames from n_stored to n_len, in every band
    cdef void window(self, int seek, int n_frames, float * out) noexcept nogil
