END: int
ALT: int
RULE_REF: int
CHAR: int
CHAR_NOT: int
CHAR_RNG_UPPER: int
CHAR_ALT: int
LAST_CHARACTER: int
MAX_ELEMENTS: int
MAX_DEPTH: int
MAX_REPEAT: int

def parse(text: str) -> tuple[list[list[tuple[int, int]]], dict[str, int]]: ...
