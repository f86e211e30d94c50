import numpy as np
import numpy.typing as npt

from .context import Context
from .params import FullParams
from .results import RunResult, SegmentData
from .state import State

PHASES: tuple[str, ...]
FAILED_IN: dict[int, int]

class FullRun:
    def __init__(
        self, ctx: Context, state: State, params: FullParams, samples: npt.NDArray[np.float32] | None = None
    ) -> None: ...
    @property
    def phase(self) -> str: ...
    def step(self) -> str: ...
    def run(self) -> RunResult: ...
    def result(self) -> RunResult: ...
    @property
    def segments(self) -> list[SegmentData]: ...
    @property
    def lang_id(self) -> int: ...
    @property
    def vad_segments(self) -> list[tuple[int, int]]: ...

def full(
    ctx: Context, state: State, params: FullParams, samples: npt.NDArray[np.float32] | None = None
) -> RunResult: ...
