from collections.abc import Iterable
from typing import Any, Literal

class Record:
    def as_dict(self) -> dict[str, Any]: ...

class TokenData(Record):
    id: int
    tid: int
    p: float
    plog: float
    pt: float
    ptsum: float
    t0: int
    t1: int
    t_dtw: int
    t_dtw_start: int
    t_dtw_end: int
    vlen: float
    text: bytes
    def __init__(
        self,
        *,
        id: int = 0,
        tid: int = 0,
        p: float = 0,
        plog: float = 0,
        pt: float = 0,
        ptsum: float = 0,
        t0: int = -1,
        t1: int = -1,
        t_dtw: int = -1,
        t_dtw_start: int = -1,
        t_dtw_end: int = -1,
        vlen: float = 0,
        text: bytes = b"",
    ) -> None: ...

class WordData(Record):
    text: bytes
    t0: float
    t1: float
    probability: float
    tokens: tuple[int, ...]

class SegmentData(Record):
    t0: int
    t1: int
    text: bytes
    tokens: tuple[TokenData, ...]
    no_speech_prob: float
    speaker_turn_next: bool
    avg_logprob: float
    temperature: float
    words: tuple[WordData, ...]
    def __init__(
        self,
        *,
        t0: int = 0,
        t1: int = 0,
        text: bytes = b"",
        tokens: Iterable[TokenData] = (),
        no_speech_prob: float = 0,
        speaker_turn_next: bool = False,
        avg_logprob: float = 0,
        temperature: float = 0,
    ) -> None: ...

class WindowData(Record):
    t0: int
    t1: int
    temperature: float
    avg_logprob: float
    entropy: float
    no_speech_prob: float
    verdict: Literal["speech", "no_speech", "loop", "failed"]

class Timings(Record):
    load_ms: float
    mel_ms: float
    encode_ms: float
    cross_ms: float
    decode_ms: float
    batchd_ms: float
    prompt_ms: float
    sample_ms: float
    total_ms: float
    n_encode: int
    n_decode: int
    n_batchd: int
    n_prompt: int
    n_sample: int
    n_fail_p: int
    n_fail_h: int

class RunResult(Record):
    language: str | None
    language_probability: float | None
    segments: tuple[SegmentData, ...]
    timings: Timings
    n_samples: int
    windows: tuple[WindowData, ...]
    vad_segments: tuple[tuple[int, int], ...]
    seed: int
