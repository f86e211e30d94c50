"""Checks at the door of the engine. What passes here may be handed to ggml."""

from libc.math cimport isfinite

from whispyx.errors import AudioError


cdef const float[::1] as_samples(object samples):
    """Return samples as contiguous float32 (n_samples,), every value finite.

    Raises AudioError for another dtype or shape, and for NaN or infinity (it says where the first one is).
    """
    cdef const float[::1] view
    cdef Py_ssize_t i, bad = -1
    import numpy as np      # not at the top: a model is read meanwhile

    array = np.asarray(samples)
    if array.dtype != np.float32 or array.ndim != 1:
        raise AudioError(
            f"samples must be a one-dimensional float32 array (16 kHz mono), not {array.ndim}-dimensional {array.dtype}"
        )
    array = np.ascontiguousarray(array)
    if array.size > 2**31 - 1:
        raise AudioError(f"{array.size} samples are more than one call can take (2**31 - 1, about 37 hours)")
    view = array
    with nogil:
        for i in range(view.shape[0]):
            if not isfinite(view[i]):
                bad = i
                break
    if bad >= 0:
        raise AudioError(f"sample {bad} ({bad / 16000.0:.3f} s) is {array[bad]}: samples must be finite")
    return view
