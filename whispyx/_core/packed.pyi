from typing import Final

PLANS: Final[dict[str, dict[str, int]]]

def logit_parts(type: int, n_vocab: int, eot: int) -> list[tuple[int, int]]: ...
