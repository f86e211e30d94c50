"""How far a device may be from the referee, and why that far.

The measure is the normalised mean square error, sum((a - b)²) / sum(b²): an error of one part in a thousand
everywhere gives 1e-6, and one wrong value among a thousand gives about 2e-3. The errors named below are those of the
plainest CPU variant against float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whispyx.plugins.cases import Case

__all__ = ["BOUNDS", "Bound", "bound_of", "nmse"]


@dataclass(frozen=True)
class Bound:
    """A limit of the error, with its reason."""

    name: str
    limit: float
    reason: str


_ALL: Final = (
    Bound("f32", 1e-9, "float32 throughout: only the order of sums and the last digits of exp differ (1e-14)"),
    Bound("gelu", 1e-6, "the CPU looks GELU up in a table of f16 numbers (1.1e-7)"),
    Bound("to f16", 1e-6, "the result is f16: rounding to nearest costs 4e-8, cutting off four times that"),
    Bound("f32 product", 1e-6, "GPUs multiply f32 with 10 bits (TF32), which costs 2e-7; exact products 1e-15"),
    Bound(
        "f16 product",
        5e-4,
        "both factors may be f16 (5e-8), and sums may be kept in f16: the CPU's fused attention does (2.3e-5), and a "
        "Vulkan driver for rows of 5120 (1.1e-4); ggml sets its backends the same limit",
    ),
    Bound("bf16 product", 1e-4, "both factors may be bf16, which keeps 8 bits (4e-6)"),
    Bound(
        "8 bits",
        5e-4,
        "activations are rounded to 8 bits in blocks (3e-5 to 8e-5), by each device in its own way; ggml sets its "
        "backends the same limit",
    ),
)
BOUNDS: Final = {bound.name: bound for bound in _ALL}

_PRODUCTS: Final = ("MUL_MAT", "FLASH_ATTN_EXT", "conv", "mlp", "attention")
_BY_TYPE: Final = {"f32": "f32 product", "f16": "f16 product", "bf16": "bf16 product"}


def bound_of(case: Case) -> Bound:
    """Return the bound that a case is held to."""
    if case.op in _PRODUCTS:
        # What is unfolded for a convolution is always f16, and devices may store keys and values so.
        type = "f16" if case.op in ("conv", "FLASH_ATTN_EXT") else case.type
        return BOUNDS[_BY_TYPE.get(type, "8 bits")]
    if case.op == "GELU":
        return BOUNDS["gelu"]
    if case.op in ("CPY", "SET_ROWS", "IM2COL"):
        return BOUNDS["to f16"]
    return BOUNDS["f32"]


def nmse(values: npt.NDArray[Any], reference: npt.NDArray[Any]) -> float:
    """Return the normalised mean square error; infinity where a value is missing or not finite."""
    if values.shape != reference.shape or not np.isfinite(values).all():
        return float("inf")
    wide = reference.astype(np.float64)
    error = float(np.square(values - wide).sum())
    size = float(np.square(wide).sum())
    return error / size if size > 0 else (0.0 if error == 0 else float("inf"))
