"""What a conversion did to each tensor."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Report", "TensorReport"]


@dataclass(frozen=True, slots=True)
class TensorReport:
    """One tensor. `error` is the root mean square of the difference over that of the tensor; 0: nothing was lost."""

    name: str
    shape: tuple[int, ...]
    before: str
    after: str
    bytes_before: int
    bytes_after: int
    error: float
    largest_error: float


@dataclass(frozen=True, slots=True)
class Report:
    """A model that was written.

    Attributes
    ----------
    path, format
        Where, and as what: "ggml" or "gguf".
    bytes_before, bytes_after
        Of all tensors.
    tensors
        In the order of the file.
    readable_by_whisper_cpp
        Whether its loader takes the file: it has one type for all matrices.
    """

    path: str
    format: str
    bytes_before: int
    bytes_after: int
    tensors: tuple[TensorReport, ...]
    readable_by_whisper_cpp: bool

    @property
    def largest_error(self) -> TensorReport | None:
        """The tensor that lost most, None when none lost anything."""
        worst = max(self.tensors, key=lambda tensor: tensor.error, default=None)
        return worst if worst is not None and worst.error > 0 else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
