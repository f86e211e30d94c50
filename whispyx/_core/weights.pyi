from .hparams import HParams

F32_ONLY: str
CONV: str
WEIGHT: str

def expected_tensors(hp: HParams) -> dict[str, tuple[tuple[int, ...], str]]: ...
