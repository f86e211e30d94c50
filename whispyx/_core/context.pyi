import os
from collections.abc import Callable, Sequence
from typing import BinaryIO

from whispyx.fallback import Fallback

from .hparams import HParams
from .mel import Filters
from .state import State
from .vocab import Vocab

class Context:
    hparams: HParams
    vocab: Vocab
    filters: Filters
    flash_attn: bool
    compute: str
    load_ms: float
    path: str | None
    alignment_heads: tuple[tuple[int, int], ...] | None
    closed: bool
    encoder: object | None
    aheads: tuple[tuple[int, int], ...]
    suppress_tokens: tuple[int, ...]
    begin_suppress_tokens: tuple[int, ...]
    fallbacks: tuple[Fallback, ...]
    @staticmethod
    def load(
        source: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO,
        *,
        use_gpu: bool = True,
        gpu_device: int = 0,
        flash_attn: bool = True,
        backends: Sequence[str] | None = None,
        fallback: bool = False,
        known: Sequence[Fallback] = (),
        progress: Callable[[int, int], object] | None = None,
        encoder: object | None = None,
        compute: str = "exact",
        mmap: bool = True,
    ) -> Context: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def kernels(self) -> str | None: ...
    @property
    def placement(self) -> dict[str, dict[str, dict[str, int]]]: ...
    @property
    def model_type(self) -> str: ...
    @property
    def ftype_name(self) -> str: ...
    @property
    def n_tensors(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def mapped_bytes(self) -> int: ...
    def set_aheads(self, heads: Sequence[tuple[int, int]]) -> None: ...
    def new_state(self) -> State: ...
    def close(self) -> None: ...
    def __enter__(self) -> Context: ...
    def __exit__(self, *exc_info: object) -> None: ...
