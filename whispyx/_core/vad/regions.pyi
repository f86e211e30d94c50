import numpy as np
import numpy.typing as npt

from whispyx._core.params import VadParams

def regions(probs: npt.NDArray[np.float32], params: VadParams, n_window: int = 512) -> list[tuple[int, int]]: ...
def to_cs(found: list[tuple[int, int]]) -> list[tuple[int, int]]: ...
