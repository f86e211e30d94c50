from collections.abc import Sequence

WEIGHT_TYPES: frozenset[int]
CONV_TYPES: frozenset[int]

def tensor_bytes(type: int, shape: Sequence[int]) -> int | None: ...
