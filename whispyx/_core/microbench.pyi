MAX_THREADS: int
COPY_BYTES: int
COPY_REPEATS: int
MUL_MAT_SIZES: tuple[int, ...]
MUL_MAT_TYPES: tuple[str, ...]
MIN_RUNS: int
MAX_RUNS: int
MAX_SECONDS: float

def memcpy_rates(n_threads: int, n_bytes: int = ..., n_repeats: int = ...) -> list[tuple[str, float]]: ...
def mul_mat_rate(
    type_name: str, n: int, n_threads: int, max_runs: int = ..., max_seconds: float = ...
) -> tuple[float, int]: ...
