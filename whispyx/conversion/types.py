"""Which type each tensor of a model gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from whispyx._weight_types import GGML_TYPES
from whispyx.errors import ParamsError

__all__ = ["BLOCKS", "TYPES", "TYPE_NAMES", "TypeChoice"]

_BY_LOSS: Final = (
    "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "q3_k", "q2_k",
)  # fmt: skip

TYPES: Final[dict[str, int]] = {name: GGML_TYPES[name] for name in _BY_LOSS}
"""ggml's numbers of the types that matrices can be written in, by name, the most exact first."""

TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}

_BLOCK: Final = {"f32": 1, "f16": 1, "bf16": 1}
BLOCKS: Final = {name: _BLOCK.get(name, 256 if name.endswith("_k") else 32) for name in TYPES}
"""How many numbers of a row are stored together."""

_PLAIN: Final = ("encoder.positional_embedding", "decoder.positional_embedding")


@dataclass(frozen=True, slots=True)
class TypeChoice:
    """What the matrices of a model become.

    Attributes
    ----------
    type : str or None
        A key of TYPES; None: what each of them is.
    encoder, decoder : str or None
        The same for one side alone.
    keep : sequence of (pattern, type)
        Exceptions by name of the tensor, with the wildcards of the shell; the first that matches counts.

    Notes
    -----
    Norms, biases and tables of positions are f32, and convolutions f16 (f32 where all is f32), as in whisper.cpp's
    files: they are small, and what they lose everything after them loses.
    """

    type: str | None = None
    encoder: str | None = None
    decoder: str | None = None
    keep: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        for name in (self.type, self.encoder, self.decoder, *(kind for _, kind in self.keep)):
            if name is not None and name not in TYPES:
                raise ParamsError(f"{name!r} is no type of weights (expected one of {', '.join(TYPES)})")

    def of_matrix(self, name: str, stored: int) -> int:
        """Return ggml's number of the type that a matrix gets."""
        for pattern, kind in self.keep:
            if fnmatchcase(name, pattern):
                return TYPES[kind]
        side = self.encoder if name.startswith("encoder.") else self.decoder
        chosen = side or self.type
        return stored if chosen is None else TYPES[chosen]

    def of(self, name: str, shape: Sequence[int], stored: int, all_f32: bool) -> int:
        """Return ggml's number of the type that a tensor gets.

        Raises
        ------
        ParamsError
            Its rows cannot be cut into the blocks of that type.
        """
        if is_plain(name, shape):
            return TYPES["f32"]
        if len(shape) == 3:
            return TYPES["f32"] if all_f32 else TYPES["f16"]
        found = self.of_matrix(name, stored)
        kind = TYPE_NAMES.get(found)
        if kind is not None and shape[-1] % BLOCKS[kind]:
            raise ParamsError(
                f"{kind} packs {BLOCKS[kind]} numbers together, and rows of {name} have {shape[-1]}: choose a type "
                "with blocks of 32, such as q8_0 or q5_1"
            )
        return found


def is_plain(name: str, shape: Sequence[int]) -> bool:
    """Whether a tensor is f32 in every file: a vector, or a table of positions."""
    return name in _PLAIN or sum(n != 1 for n in shape) < 2 or name.endswith(".bias")
