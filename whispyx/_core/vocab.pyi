from collections.abc import Collection

from .hparams import HParams

MAX_TOKEN_BYTES: int

def standard_special(multilingual: bool, n_languages: int) -> dict[str, int]: ...
def is_control(text: bytes) -> bool: ...

class Vocab:
    n_vocab: int
    n_stored: int
    n_languages: int
    is_multilingual: bool
    eot: int
    sot: int
    translate: int
    transcribe: int
    solm: int
    prev: int
    nosp: int
    not_: int
    beg: int
    end: int
    words: frozenset[int]
    def __init__(
        self,
        hparams: HParams,
        stored: list[bytes],
        special: dict[str, int] | None = None,
        hidden: Collection[int] = (),
    ) -> None: ...
    @property
    def unused(self) -> list[int]: ...
    @property
    def n_used(self) -> int: ...
    def token_bytes(self, token: int) -> bytes: ...
    def token_id(self, text: bytes) -> int | None: ...
    def lang_token(self, lang_id: int) -> int: ...
    def tokenize(self, text: str) -> list[int]: ...
