import numpy as np
import numpy.typing as npt

from .context import Context
from .params import FullParams
from .results import RunResult, SegmentData
from .state import State

class ParallelRun:
    def __init__(
        self, ctx: Context, state: State, params: FullParams, samples: npt.NDArray[np.float32], n_processors: int
    ) -> None: ...
    @property
    def segments(self) -> list[SegmentData]: ...
    @property
    def lang_id(self) -> int: ...
    @property
    def vad_segments(self) -> list[tuple[int, int]]: ...
    def run(self) -> RunResult: ...

def full_parallel(
    ctx: Context, state: State, params: FullParams, samples: npt.NDArray[np.float32], n_processors: int = 1
) -> RunResult: ...
