from typing import Final

PLANS: Final[dict[str, dict[str, int]]]
