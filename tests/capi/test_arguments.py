"""Wrong pointers: what C would follow into memory that is not there."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from whispyx import capi
from whispyx.errors import StateError

from .conftest import quick

SOUND = np.zeros(3200, np.float32)
GOOD: dict[str, Any] = {
    "samples": SOUND, "n_samples": len(SOUND), "n_threads": 1, "offset": 0, "offset_ms": 0, "n_past": 0, "n_tokens": 1,
    "tokens": [0], "n_len": 10, "n_mel": 80, "data": np.zeros((80, 10), np.float32), "i_segment": 0, "i_token": 0,
}  # fmt: skip
"""An argument that each function takes, by name."""


def with_state() -> list[str]:
    """Every function that takes a context and a state."""
    found = []
    for name in capi.__all__:
        function = getattr(capi, name)
        if inspect.isfunction(function) and {"ctx", "state"} <= set(inspect.signature(function).parameters):
            found.append(name)
    return found


@pytest.mark.parametrize("name", with_state())
def test_a_state_without_its_context_is_refused(ctx: Any, name: str) -> None:
    function = getattr(capi, name)
    state = capi.whisper_init_state(ctx)
    arguments = {
        "state": state, "params": quick(),
        **{wanted: GOOD.get(wanted) for wanted in inspect.signature(function).parameters if wanted not in
           ("ctx", "state", "params")},
    }  # fmt: skip
    arguments = {wanted: arguments[wanted] for wanted in inspect.signature(function).parameters if wanted != "ctx"}
    with pytest.raises(StateError, match="context is NULL"):
        function(ctx=None, **arguments)
    with pytest.raises(TypeError, match="whisper_context is needed"):
        function(ctx=state, **arguments)
    capi.whisper_free_state(state)


def test_only_what_can_be_freed_is_freed(ctx: Any) -> None:
    state = capi.whisper_init_state(ctx)
    for free, wrong in (
        (capi.whisper_free, state),
        (capi.whisper_free_state, ctx),
        (capi.whisper_vad_free, ctx),
        (capi.whisper_vad_free_segments, state),
    ):
        free(None)
        for value in (wrong, 0, "x"):
            with pytest.raises(TypeError, match="is needed"):
                free(value)
    assert capi.whisper_full_n_segments(ctx) == capi.whisper_full_n_segments_from_state(state) == 0
    capi.whisper_free_state(state)
