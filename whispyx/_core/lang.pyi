import numpy as np
import numpy.typing as npt

from .context import Context
from .state import State

def detect_language(
    ctx: Context,
    state: State,
    samples: npt.NDArray[np.float32] | None,
    n_threads: int = 1,
    offset_ms: int = 0,
) -> tuple[int, npt.NDArray[np.float32]]: ...
