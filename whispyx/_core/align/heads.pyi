from collections.abc import Iterable

from ..hparams import HParams

NAMES: tuple[str, ...]
PRESETS: dict[str, tuple[tuple[int, int], ...]]
LAGS: dict[tuple[tuple[int, int], ...], int]

def preset_name(preset: str | int) -> str: ...
def check_heads(heads: Iterable[tuple[int, int]] | None, hparams: HParams) -> tuple[tuple[int, int], ...]: ...
def resolve(
    preset: str | int, n_top: int, custom: Iterable[tuple[int, int]] | None, hparams: HParams
) -> tuple[tuple[int, int], ...]: ...
def preset_for(hparams: HParams, name: str | None = None) -> tuple[str, int]: ...
