"""The numbers that types of weights have: ggml's of a tensor, and whisper.cpp's of a file."""

from __future__ import annotations

from typing import Final

__all__ = ["FILE_TYPES", "GGML_TYPES"]

GGML_TYPES: Final[dict[str, int]] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12,
    "q5_k": 13, "q6_k": 14, "i8": 24, "i16": 25, "bf16": 30,
}  # fmt: skip
"""ggml's numbers of the types that tensors of a model can have. i8 and i16 come with factors (CTranslate2)."""

FILE_TYPES: Final[dict[str, int]] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 11, "q4_k": 12,
    "q5_k": 13, "q6_k": 14, "bf16": 24,
}  # fmt: skip
"""whisper.cpp's number of a file, at its head, by the type of its matrices (enum ggml_ftype)."""
