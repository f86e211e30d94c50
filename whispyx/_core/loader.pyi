MAGIC: int
WEIGHT_TYPES: frozenset[int]
CONV_TYPES: frozenset[int]
