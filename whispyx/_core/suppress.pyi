from collections.abc import Iterable

from .vocab import Vocab

TIME_LIMIT: float

class RegexSuppressor:
    def __init__(self, vocab: Vocab, pattern: str, search: bool) -> None: ...
    def suppressed(self, tokens: Iterable[int] = ()) -> list[int]: ...
