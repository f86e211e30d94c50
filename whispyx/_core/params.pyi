from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .grammar import Grammar
from .results import SegmentData, TokenData

FIELDS: dict[str, tuple[Any, Callable[[str, Any], Any]]]

VAD_FIELDS: dict[str, tuple[Any, Callable[[str, Any], Any]]]

def usable_cores() -> int: ...

class VadParams:
    threshold: float
    min_speech_duration_ms: int
    min_silence_duration_ms: int
    max_speech_duration_s: float
    speech_pad_ms: int
    samples_overlap: float
    def __init__(self, **overrides: Any) -> None: ...
    def copy(self) -> VadParams: ...

class FullParams:
    strategy: Literal["greedy", "beam_search"]
    n_threads: int
    n_max_text_ctx: int
    offset_ms: int
    duration_ms: int
    translate: bool
    no_context: bool
    no_timestamps: bool
    single_segment: bool
    print_special: bool
    print_realtime: bool
    print_timestamps: bool
    token_timestamps: bool
    thold_pt: float
    thold_ptsum: float
    max_len: int
    split_on_word: bool
    max_tokens: int
    audio_ctx: int
    no_pad: bool
    tdrz_enable: bool
    suppress_regex: str | None
    suppress_regex_search: bool
    initial_prompt: str | None
    carry_initial_prompt: bool
    prompt_tokens: Sequence[int] | None
    language: str | None
    detect_language: bool
    suppress_blank: bool
    suppress_nst: bool
    suppress_listed: bool
    temperature: float
    max_initial_ts: float
    length_penalty: float
    temperature_inc: float
    entropy_thold: float
    logprob_thold: float
    no_speech_thold: float
    best_of: int
    beam_size: int
    patience: float
    grammar: Grammar | None
    grammar_penalty: float
    vad: bool
    vad_model_path: str | None
    vad_params: VadParams
    dtw: bool
    word_timestamps: bool
    reference_sampling: bool
    seed: int
    progress_callback: Callable[[int], object] | None
    new_segment_callback: Callable[[list[SegmentData]], object] | None
    encoder_begin_callback: Callable[[], bool] | None
    abort_callback: Callable[[], bool] | None
    logits_filter_callback: Callable[[list[TokenData], NDArray[np.float32]], object] | None
    def __init__(self, **overrides: Any) -> None: ...
    def copy(self) -> FullParams: ...
    def as_dict(self) -> dict[str, Any]: ...

def temperatures(params: FullParams) -> list[float]: ...
