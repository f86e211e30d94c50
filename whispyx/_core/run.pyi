import numpy as np
import numpy.typing as npt

from .context import Context
from .params import FullParams
from .results import RunResult
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

def full(
    ctx: Context, state: State, params: FullParams, samples: npt.NDArray[np.float32] | None = None
) -> RunResult: ...
def detect_language(
    ctx: Context,
    state: State,
    samples: npt.NDArray[np.float32] | None,
    n_threads: int = 1,
    offset_ms: int = 0,
) -> tuple[int, npt.NDArray[np.float32]]: ...
