from typing import Any

import numpy as np
import numpy.typing as npt

def costs_of(weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]: ...
def starts_of(costs: npt.NDArray[Any]) -> npt.NDArray[np.int32]: ...
