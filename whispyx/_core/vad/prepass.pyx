"""Voice activity detection in front of a run: which parts of a recording are recognised."""

import os

import numpy as np

from whispyx._core.check cimport as_samples
from whispyx._core.state cimport State
from whispyx._core.vad.detect cimport VadModel

from whispyx._core.vad.regions import regions, to_cs
from whispyx._core.vad.timemap import gather


cdef VadModel voice_of(State state, path, int n_threads):
    """Return the state's voice activity model of this file; another file, or a changed one, is read anew."""
    about = os.stat(path) if os.path.exists(path) else None
    key = (os.path.abspath(path), about and (about.st_mtime_ns, about.st_size))
    if state.voice is None or state.voice_key != key:
        fresh = VadModel.load(path, n_threads=n_threads)
        if state.voice is not None:
            state.voice.close()
        state.voice, state.voice_key = fresh, key
    return state.voice


def find_speech(State state not None, samples, path, params, int n_threads):
    """Return the speech regions, the samples in them, and the way back to the recording's times.

    Parameters
    ----------
    state
        In use by the job. It keeps the model for the next one.
    samples
        float32 (n_samples,), 16 kHz.
    path, params
        The model's file and a VadParams.

    Returns
    -------
    tuple
        Regions [(t0, t1)] in units of 10 ms; their samples, float32; a TimeMap. Without speech: [], None, None.
    """
    cdef VadModel voice = voice_of(state, path, n_threads)
    voice.run(as_samples(samples), True, state.abort, n_threads)
    found = to_cs(regions(voice.probs, params, voice.n_window))
    if not found:
        return [], None, None
    heard, time_map = gather(np.asarray(samples), found, params.samples_overlap)
    return found, heard, time_map
