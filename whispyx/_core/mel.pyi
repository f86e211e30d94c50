import numpy as np
import numpy.typing as npt

class Filters:
    n_mels: int
    n_fft: int
    def __init__(self, weights: npt.ArrayLike) -> None: ...
    def array(self) -> npt.NDArray[np.float32]: ...

class MelSpectrogram:
    n_mels: int
    n_stored: int
    n_len: int
    n_len_org: int
    pad_value: float
    @staticmethod
    def of_samples(samples: npt.NDArray[np.float32], filters: Filters, n_threads: int = 1) -> MelSpectrogram: ...
    @staticmethod
    def of_mel(mel: npt.ArrayLike, n_mels: int) -> MelSpectrogram: ...
    def array(self) -> npt.NDArray[np.float32]: ...

def log_mel(
    samples: npt.NDArray[np.float32], filters: npt.ArrayLike, n_threads: int = 1
) -> npt.NDArray[np.float32]: ...
