"""An encoder that is not the model's own: any Python callable, or an object that opens a session for each state.

A callable gets the window's mel spectrogram, float32 (n_mels, 2 * n_ctx), and returns float32 (n_ctx, n_state). It may
be called by several threads at once if several states have it. An object with methods `whispyx_check(n_mels,
n_audio_ctx, n_audio_state)`, which refuses a model that it does not fit, and `whispyx_session` (the same arguments) is
asked for a session when a state takes it. If it has `whispyx_made_from`, the fingerprint of the model that it was made
from (or None), other models refuse it. A session has `run(mel, n_threads, stop)`, where `stop()` is True when the
job is to end (then it returns None), and `close()`.
"""

import logging

from whispyx._core.abort cimport AbortPoll
from whispyx._core.hparams cimport HParams

from whispyx.errors import ComputeError, ParamsError

_logger = logging.getLogger("whispyx.core")


def encoder_name(encoder) -> str:
    """Return what to call an encoder: its own `name`, a function's name, or its class."""
    for attribute in ("name", "__qualname__"):
        name = getattr(encoder, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(encoder).__name__


cdef class External:
    """An encoder as one state uses it."""

    cdef object run(self, object mel, HParams hp, int n_threads, AbortPoll abort):
        """Return the output for mel (n_mels, 2 * n_ctx), checked: float32 (n_ctx, n_state), contiguous, finite."""
        cdef int n_ctx = mel.shape[1] // 2
        if self.closed:
            raise ComputeError(f"the encoder {self.name} was closed")
        if self.session is None:
            found = self.given(mel)
        else:
            found = self.session.run(mel, n_threads, abort.poll)
        abort.poll()
        abort.raise_pending()
        wanted = f"a float32 array ({n_ctx}, {hp.n_audio_state}) is needed"
        import numpy as np      # not at the top: a model is read meanwhile

        if not isinstance(found, np.ndarray):
            raise ComputeError(f"the encoder {self.name} returned {type(found).__name__}; {wanted}")
        if found.dtype != np.float32 or found.shape != (n_ctx, hp.n_audio_state):
            raise ComputeError(f"the encoder {self.name} returned {found.dtype} {found.shape}; {wanted}")
        if not np.isfinite(found).all():
            raise ComputeError(f"the encoder {self.name} returned values that are not finite")
        return np.ascontiguousarray(found)

    cdef void close(self) noexcept:
        if not self.closed:
            self.closed = True
            if self.session is not None:
                try:
                    self.session.close()
                except Exception:
                    _logger.exception("closing a session of the encoder %s failed", self.name)
            self.session = None


cdef int check_external(object encoder, HParams hp, str model, str fingerprint) except -1:
    """Refuse what is no encoder, or none for a model with these settings and this fingerprint (None: not known)."""
    check = getattr(encoder, "whispyx_check", None)
    opens = getattr(encoder, "whispyx_session", None)
    for name, method in (("whispyx_check", check), ("whispyx_session", opens)):
        if method is not None and not callable(method):
            raise ParamsError(f"the encoder {encoder_name(encoder)} has a {name} that is no method but {method!r}")
    if opens is None and not callable(encoder):
        raise ParamsError(f"an encoder is a callable or has whispyx_check and whispyx_session; got {encoder!r}")
    if check is not None:
        check(hp.n_mels, hp.n_audio_ctx, hp.n_audio_state)
    made_from = getattr(encoder, "whispyx_made_from", None)
    if None not in (made_from, fingerprint) and made_from != fingerprint:
        raise ParamsError(
            f"the encoder {encoder_name(encoder)} was made from another model than {model or 'this one'}, whose weights"
            " differ: 'whispyx openvino-encoder' writes that of a model, for all types of its weights"
        )
    return 0


cdef External open_external(object encoder, HParams hp, str model, str fingerprint):
    """Take an encoder for a state of a model with these settings."""
    check_external(encoder, hp, model, fingerprint)
    cdef External self = External.__new__(External)
    self.given, self.name = encoder, encoder_name(encoder)
    opens = getattr(encoder, "whispyx_session", None)
    if opens is not None:
        session = opens(hp.n_mels, hp.n_audio_ctx, hp.n_audio_state)
        for method in ("run", "close"):
            if not callable(getattr(session, method, None)):
                raise ParamsError(f"the encoder {self.name} opened {session!r}: no session, as it has no {method}()")
        self.session = session
    return self
