from collections.abc import Callable, Sequence
from typing import Any

from .results import SegmentData

FIELDS: dict[str, tuple[Any, Callable[[str, Any], Any]]]

def usable_cores() -> int: ...

class FullParams:
    n_threads: int
    n_max_text_ctx: int
    offset_ms: int
    duration_ms: int
    translate: bool
    no_context: bool
    no_timestamps: bool
    single_segment: bool
    print_special: bool
    max_tokens: int
    audio_ctx: int
    tdrz_enable: bool
    initial_prompt: str | None
    carry_initial_prompt: bool
    prompt_tokens: Sequence[int] | None
    language: str | None
    detect_language: bool
    suppress_blank: bool
    suppress_nst: bool
    temperature: float
    max_initial_ts: float
    length_penalty: float
    temperature_inc: float
    entropy_thold: float
    logprob_thold: float
    no_speech_thold: float
    best_of: int
    seed: int
    progress_callback: Callable[[int], object] | None
    new_segment_callback: Callable[[list[SegmentData]], object] | None
    encoder_begin_callback: Callable[[], bool] | None
    abort_callback: Callable[[], bool] | None
    def __init__(self, **overrides: Any) -> None: ...
    def copy(self) -> FullParams: ...
    def as_dict(self) -> dict[str, Any]: ...
