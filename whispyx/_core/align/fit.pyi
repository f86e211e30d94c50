import numpy as np
import numpy.typing as npt

WEIGHTS: dict[str, float]

def loudness_of(samples: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float64]: ...
def spans_of(look: npt.ArrayLike, voiced: npt.ArrayLike, length: npt.ArrayLike) -> list[tuple[int, int]]: ...
