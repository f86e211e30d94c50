from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from .context import Context
from .params import FullParams
from .results import RunResult
from .state import State

DEFAULT_TOGETHER: Final[int]

class BatchRun:
    def __init__(
        self,
        ctx: Context,
        state: State,
        params: FullParams,
        regions: Sequence[npt.NDArray[np.float32]],
        together: int = 8,
    ) -> None: ...
    @property
    def n_together(self) -> int: ...
    def run(self) -> list[RunResult]: ...

def full_batch(
    ctx: Context, state: State, params: FullParams, regions: Sequence[npt.NDArray[np.float32]], together: int = 8
) -> list[RunResult]: ...
