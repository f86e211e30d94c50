"""The compute kernels as plain C libraries: opened with cffi, one per instruction set that this machine can run.

The libraries lie in `whispyx/_native/kernels/` or in the folder that `WHISPYX_TEST_KERNELS` names.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

cffi = pytest.importorskip("cffi")

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = ROOT / "backends/kernels/src/whispyx_kernels.h"
ALIGN = 64
F32, F16, BF16, I8, Q8, G8, N4 = 0, 1, 2, 3, 4, 5, 6
TYPES = {"f32": F32, "bf16": BF16, "i8": I8}
KINDS = {**TYPES, "g8": G8, "q8": Q8, "n4": N4}  # g8 is for the encoder, q8 for the decoder, n4 for logits

ffi = cffi.FFI()


def _declarations() -> str:
    """Return the header as cffi takes it: no directives, no alignment (which cdef cannot say), no comments."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    values = dict(re.findall(r"^#define (WX_\w+) (\d+)", text, flags=re.MULTILINE))
    text = re.sub(r'extern "C" \{\n|^\}\n#endif', "", text, flags=re.MULTILINE)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    # Where the three counters of a wx_sync lie: on two lines of 64 bytes.
    text = re.sub(
        r"typedef struct wx_sync \{.*?\} wx_sync;",
        "typedef struct wx_sync { int32_t at[32]; } wx_sync;",
        text,
        flags=re.S,
    )
    constants = "".join(f"#define {name} {value}\n" for name, value in values.items())
    return constants + text + "\nint whispyx_kernels_score(void); const wx_kernels * whispyx_kernels(void);"


ffi.cdef(_declarations() + "int posix_memalign(void ** at, size_t alignment, size_t n_bytes); void free(void * p);")
libc = ffi.dlopen(None)


def _folder() -> Path:
    named = os.environ.get("WHISPYX_TEST_KERNELS")
    if named:
        return Path(named)
    built = ROOT / "whispyx/_native/kernels"
    if built.is_dir():
        return built
    import whispyx

    return Path(whispyx.__file__).resolve().parent / "_native/kernels"


def aligned(n_bytes: int) -> np.ndarray:
    """Return n_bytes of bytes 0xA5 whose address suits the kernels.

    A block of exactly this size: under a sanitizer (tools/sanitize.py), the next byte is out of bounds.
    """
    found = ffi.new("void **")
    if libc.posix_memalign(found, ALIGN, max(n_bytes, 1)) != 0:
        raise MemoryError(n_bytes)
    memory = np.frombuffer(ffi.buffer(ffi.gc(found[0], libc.free), max(n_bytes, 1)), dtype=np.uint8)[:n_bytes]
    memory[:] = 0xA5
    return memory


def pointer(array: np.ndarray | None, kind: str = "void *") -> Any:
    """Return the address of an array, or NULL."""
    return ffi.NULL if array is None else ffi.cast(kind, array.ctypes.data)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers as the bits of bf16 (to nearest even), uint16; no NaN expected."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """Return the numbers of bf16 bits, float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded_bf16(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to bf16."""
    return from_bf16(to_bf16(x))


class Library:
    """One kernel library."""

    def __init__(self, path: Path) -> None:
        self._handle = ffi.dlopen(str(path))
        self.score = self._handle.whispyx_kernels_score()
        self.table = self._handle.whispyx_kernels() if self.score > 0 else None
        self.name = ffi.string(self.table.name).decode() if self.table else path.name
        self.emulated = 0 < self.score < 10  # AVX-512 in terms of AVX2 (tools/emulate.py)

    def __repr__(self) -> str:
        return self.name

    def together(self, n_threads: int, call: Any) -> None:
        """Run call(sync, ith, nth) on n_threads threads at once, as ggml's pool does."""
        sync = aligned(128)
        sync[:] = 0
        where = pointer(sync, "wx_sync *")
        with ThreadPoolExecutor(n_threads) as pool:
            for done in [pool.submit(call, where, i, n_threads) for i in range(n_threads)]:
                done.result()

    def empty(self, kind: int, n_out: int, n_in: int, around: np.ndarray | None = None) -> Packed:
        """Return a matrix of (n_out, n_in) whose memory holds nothing yet."""
        data = aligned(self.table.matrix_bytes(kind, n_out, n_in))
        matrix = ffi.new("wx_matrix *", {"type": kind, "n_out": n_out, "n_in": n_in, "data": pointer(data)})
        matrix.around = pointer(around, "float *")
        return Packed(self, matrix, data, around)

    def pack(
        self,
        weights: np.ndarray,
        kind: int,
        src_type: int = F32,
        factor: float = 1.0,
        around: np.ndarray | None = None,
    ) -> Packed:
        """Pack weights (n_out, n_in), float32 or the bits of src_type."""
        packed = self.empty(kind, *weights.shape, around)
        packed.put(0, np.ascontiguousarray(weights), src_type, factor)
        return packed


class Packed:
    """A packed matrix and the memory behind it."""

    def __init__(self, library: Library, matrix: Any, data: np.ndarray, around: np.ndarray | None = None) -> None:
        self.lib, self.matrix, self.data, self.around = library, matrix, data, around

    def put(self, first: int, weights: np.ndarray, src_type: int = F32, factor: float = 1.0) -> None:
        """Pack rows from `first` on."""
        self.lib.table.pack(self.matrix, first, len(weights), pointer(weights), src_type, factor)

    def times(self, x: np.ndarray, bias: np.ndarray | None = None, n_threads: int = 1) -> np.ndarray:
        """Return x (n, n_in) times the transposed matrix, plus bias: float32 (n, n_out)."""
        table, n = self.lib.table, x.shape[0]
        x = np.ascontiguousarray(x, dtype=np.float32)
        out = np.full((n, self.matrix.n_out), np.nan, dtype=np.float32)
        scratch = aligned(table.matmul_bytes(self.matrix, n))
        linear = ffi.new("wx_linear *", {"w": self.matrix[0], "bias": pointer(bias, "float *")})
        px, py, ps = pointer(x, "float *"), pointer(out, "float *"), pointer(scratch)
        self.lib.together(n_threads, lambda sync, ith, nth: table.matmul(linear, px, n, py, ps, sync, ith, nth))
        return out


def _libraries() -> list[Library]:
    if not sys.platform.startswith("linux"):
        return []
    folder = _folder()
    found = [Library(path) for path in sorted(folder.glob("libwhispyx-kernels-*"))] if folder.is_dir() else []
    return [library for library in found if library.score > 0]


LIBRARIES = _libraries()

# Every test that takes `library` runs on every instruction set of the machine.
each_library = pytest.mark.parametrize(
    "library", LIBRARIES or [pytest.param(None, marks=pytest.mark.skip(reason="no kernel library was built"))], ids=str
)
