from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..results import SegmentData
from ..state import State

def attention_of(
    state: State, tokens: Sequence[int], n_positions: int, n_threads: int = 1
) -> npt.NDArray[np.float32]: ...
def align(
    state: State,
    segments: Sequence[SegmentData],
    seek: int,
    n_frames: int,
    lang_id: int = -1,
    n_threads: int = 1,
    translate: bool = False,
    marks: bool = True,
    samples: npt.NDArray[np.float32] | None = None,
    words: bool = False,
) -> None: ...
