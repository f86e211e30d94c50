"""How far two arrays are apart, and the bounds that tests hold the core to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# Normalised mean square error that a stage may have against float64. The engine multiplies matrices in the weight's
# own arithmetic, keeps attention keys and values as float16, and reads GELU from a float16 table (2^-11 relative):
# - f32 and f16 weights: a few roundings of 2^-11 in a row, 1e-7 each in the mean square; summed over the layers.
# - bf16 weights: activations are rounded to bf16 as well, 2^-9 relative, 16 times that in the mean square.
# - quantised weights: activations are cut into blocks of 8-bit numbers; 1/254 of the largest of 32 values (of 256 for
#   the K types) each, in every matrix product.
NMSE_TOLERANCE = {"f32": 3e-5, "f16": 3e-5, "bf16": 2e-4}
NMSE_TOLERANCE_QUANTISED = 3e-3


def nmse_tolerance(weight_type: str) -> float:
    return NMSE_TOLERANCE.get(weight_type, NMSE_TOLERANCE_QUANTISED)


def nmse(ours: npt.NDArray[Any], truth: npt.NDArray[Any]) -> float:
    """Mean square of the difference over the mean square of the truth."""
    ours = ours.astype(np.float64)
    return float(((ours - truth) ** 2).mean() / (truth**2).mean())


def assert_close(what: str, ours: npt.NDArray[Any], truth: npt.NDArray[Any], tolerance: float) -> None:
    """Print both measures of the difference, and hold the mean square one to its bound."""
    assert ours.shape == truth.shape, f"{what}: shape {ours.shape}, expected {truth.shape}"
    assert np.isfinite(ours).all(), f"{what}: not finite"
    error, largest = nmse(ours, truth), float(np.abs(ours - truth).max())
    print(f"{what}: largest difference {largest:.2e} (spread {truth.std():.2e}), nmse {error:.1e} <= {tolerance:.0e}")
    assert error <= tolerance, f"{what}: nmse {error:.2e}, largest difference {largest:.2e}"
