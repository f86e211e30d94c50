"""An engine in memory: it hears nothing and says what it was told to, to test the layer above it alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from whispyx.constants import SAMPLE_RATE
from whispyx.errors import Aborted

EOT = 50257


@dataclass(frozen=True)
class FakeToken:
    id: int
    text: bytes
    tid: int = EOT + 107
    p: float = 0.5
    plog: float = -0.7
    pt: float = 0.1
    ptsum: float = 0.1
    t0: int = -1
    t1: int = -1
    t_dtw: int = -1
    vlen: float = 0.0


@dataclass(frozen=True)
class FakeSegment:
    t0: int
    t1: int
    text: bytes
    tokens: tuple[FakeToken, ...] = ()
    no_speech_prob: float = 0.01
    speaker_turn_next: bool = False
    avg_logprob: float = -0.3
    temperature: float = 0.0


@dataclass(frozen=True)
class FakeTimings:
    load_ms: float = 1.0
    mel_ms: float = 2.0
    encode_ms: float = 3.0
    cross_ms: float = 1.0
    decode_ms: float = 4.0
    batchd_ms: float = 0.0
    prompt_ms: float = 1.0
    sample_ms: float = 0.5
    total_ms: float = 12.0
    n_encode: int = 1
    n_decode: int = 2
    n_batchd: int = 0
    n_prompt: int = 1
    n_sample: int = 3
    n_fail_p: int = 0
    n_fail_h: int = 0


@dataclass(frozen=True)
class FakeResult:
    language: str
    language_probability: float | None
    segments: tuple[FakeSegment, ...]
    timings: FakeTimings
    n_samples: int


@dataclass
class FakeVocab:
    is_multilingual: bool = True
    n_languages: int = 99
    eot: int = EOT
    words: frozenset[int] = frozenset()


@dataclass
class FakeHParams:
    n_vocab: int = 51865
    n_audio_ctx: int = 1500
    n_audio_state: int = 512
    n_audio_head: int = 8
    n_audio_layer: int = 6
    n_text_ctx: int = 448
    n_text_state: int = 512
    n_text_head: int = 8
    n_text_layer: int = 6
    n_mels: int = 80


class FakeState:
    def __init__(self, context: FakeContext) -> None:
        self.context = context
        self.closed = False
        self.lost = False

    def close(self) -> None:
        assert not self.closed, "a state was closed twice"
        self.closed = True


class FakeContext:
    path = "/models/ggml-fake.bin"
    model_type = "base"
    ftype_name = "f16"
    devices = ("GPU0", "CPU")
    load_ms = 12.5
    weight_bytes = 147_000_000
    flash_attn = True
    compute = "exact"
    kernels: str | None = None
    fallbacks = ()
    placement: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, multilingual: bool = True) -> None:
        self.vocab = FakeVocab(is_multilingual=multilingual)
        self.hparams = FakeHParams()
        self.states: list[FakeState] = []
        self.closed = False

    def new_state(self) -> FakeState:
        state = FakeState(self)
        self.states.append(state)
        return state

    def close(self) -> None:
        self.closed = True


class FakeParams:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        return self.fields.get(name)


@dataclass
class FakeEngine:
    """Answers every job with `says`; `during` is called before each segment with the job's state."""

    says: tuple[FakeSegment, ...] = (FakeSegment(0, 100, b" Hello."),)
    multilingual: bool = True
    during: Callable[[FakeState], None] = lambda state: None
    opened: list[FakeContext] = field(default_factory=list)
    asked: list[FakeParams] = field(default_factory=list)
    busy: set[FakeState] = field(default_factory=set)
    most_busy: int = 0
    cores: int = 2
    lock: Any = field(default_factory=threading.Lock)

    def open(self, source: Any, backend: Any, *, progress: Any, **settings: Any) -> FakeContext:
        context = FakeContext(multilingual=self.multilingual)
        self.opened.append(context)
        if progress is not None:
            progress(50, 100, "read")
            progress(100, 100, "read")
        return context

    def encoder_name(self, context: FakeContext) -> None:
        return None

    def usable_cores(self) -> int:
        return self.cores

    def params(self, **fields: Any) -> FakeParams:
        return FakeParams(**fields)

    def full(self, context: FakeContext, state: FakeState, params: FakeParams, samples: Any) -> FakeResult:
        with self.lock:
            assert not state.closed and state not in self.busy, "a state was lent to two jobs at once"
            self.busy.add(state)
            self.most_busy = max(self.most_busy, len(self.busy))
            self.asked.append(params)
        said: list[FakeSegment] = []
        try:
            for number, segment in enumerate(self.says, start=1):
                self.during(state)
                if params.abort_callback is not None and params.abort_callback():
                    raise Aborted(partial=self.result(params, said, samples))
                said.append(segment)
                if params.new_segment_callback is not None:
                    params.new_segment_callback([segment])
                if params.progress_callback is not None:
                    params.progress_callback(100 * number // len(self.says))
            return self.result(params, said, samples)
        finally:
            with self.lock:
                self.busy.discard(state)

    @staticmethod
    def result(params: FakeParams, said: list[FakeSegment], samples: Any) -> FakeResult:
        detected = params.language == "auto"
        return FakeResult(
            "fr" if detected else params.language, 0.75 if detected else None, tuple(said), FakeTimings(), len(samples)
        )

    def detect_language(
        self, context: FakeContext, state: FakeState, samples: Any, n_threads: int, offset_ms: int
    ) -> tuple[int, Any]:
        probabilities = np.full(99, 0.001, np.float32)
        probabilities[2] = 0.902  # German
        return 2, probabilities

    def load_audio(self, audio: Any, sample_rate: int | None) -> Any:
        return np.asarray(audio, np.float32)


def seconds_of_audio(seconds: float) -> Any:
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)
