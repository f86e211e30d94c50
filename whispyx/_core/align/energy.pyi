import numpy as np
import numpy.typing as npt

from ..results import SegmentData
from ..vocab import Vocab

def energy_of(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]: ...

class TokenClock:
    def __init__(
        self, samples: npt.NDArray[np.float32] | None, thold_pt: float, thold_ptsum: float, vocab: Vocab
    ) -> None: ...
    def fill(self, segment: SegmentData) -> None: ...
