"""Tiny models behind the C API, and the script that asks whisper.cpp."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from whispyx import capi

ROOT = Path(__file__).resolve().parents[2]
SOUND = np.random.default_rng(5).normal(0, 0.1, 16000 * 4).astype(np.float32)

Samples = NDArray[np.float32]


@pytest.fixture(scope="session")
def model() -> Path:
    """A multilingual model with random weights."""
    return pair(TinyModel(n_vocab=51865)).path


@pytest.fixture(scope="session")
def english_model() -> Path:
    """An English-only model with random weights."""
    return pair(TinyModel(n_vocab=51864)).path


@pytest.fixture
def ctx(model: Path) -> Iterator[Any]:
    context = capi.whisper_init_from_file_with_params(str(model), capi.whisper_context_default_params())
    assert context is not None
    yield context
    capi.whisper_free(context)


@pytest.fixture
def english(english_model: Path) -> Iterator[Any]:
    context = capi.whisper_init_from_file_with_params(str(english_model), capi.whisper_context_default_params())
    assert context is not None
    yield context
    capi.whisper_free(context)


def quick(**fields: Any) -> Any:
    """Greedy parameters for one attempt in one thread."""
    params = capi.whisper_full_default_params(capi.WHISPER_SAMPLING_GREEDY)
    params.n_threads = 1
    params.temperature_inc = 0.0
    for name, value in fields.items():
        setattr(params, name, value)
    return params


def script(tokens: list[int] | Callable[[int], int]) -> Callable[..., None]:
    """A logits filter that leaves one token likely per step: the i-th of a window's, the last one from then on."""

    def filter_logits(ctx: Any, state: Any, so_far: Any, n: int, logits: Samples, user_data: Any) -> None:
        wanted = tokens(n) if callable(tokens) else tokens[min(n, len(tokens) - 1)]
        logits[:] = -100.0
        logits[wanted] = 100.0

    return filter_logits


@pytest.fixture(scope="session")
def ask_whispercpp(whispercpp_python: Path) -> Callable[..., Any]:
    """Call a function of tests/capi/peer.py inside the environment that has whisper.cpp, and return its answer."""

    def ask(function: str, **arguments: Any) -> Any:
        done = subprocess.run(
            [str(whispercpp_python), str(ROOT / "tests/capi/peer.py"), function, json.dumps(arguments)],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return ask


def spans(ctx: Any) -> list[tuple[int, int]]:
    """Start and end of every segment."""
    n = capi.whisper_full_n_segments(ctx)
    return [(capi.whisper_full_get_segment_t0(ctx, i), capi.whisper_full_get_segment_t1(ctx, i)) for i in range(n)]


def near(expected: list[tuple[int, int]]) -> Any:
    """Spans to compare with: the last frame of a recording is cut off by its analysis window, and ends stay in it."""
    return [pytest.approx(span, abs=1) for span in expected]
