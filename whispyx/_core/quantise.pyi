import numpy as np
import numpy.typing as npt

def quantise(rows: npt.NDArray[np.float32], type: int) -> bytearray: ...
def dequantise(
    raw: bytes | bytearray | memoryview | npt.NDArray[np.uint8], type: int, width: int
) -> npt.NDArray[np.float32]: ...
