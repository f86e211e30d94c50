"""The library of compute kernels that this process uses, and memory for it.

The library itself is found, scored and opened by `whispyx.plugins.kernels`, and never unloaded; here it is only known.
"""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free

from whispyx._core.handles cimport prefer_huge_pages

from whispyx.errors import BackendAbiError, ComputeMemoryError, ParamsError

cdef enum:
    HUGE_PAGE = 2 << 20

cdef const wx_kernels * _table = NULL
cdef str _path = ""

COMPUTE = ("auto", "f32", "bf16", "mixed", "int8", "exact")
"""Precisions that can be asked for: see docs/performance.md."""

AUTO = "mixed"
"""What "auto" means where there are kernels; docs/performance.md tells how it was found."""

TYPES = {WX_F32: "f32", WX_BF16: "bf16", WX_I8: "i8", WX_Q8: "q8", WX_G8: "g8", WX_N4: "n4"}
"""Names of the types that matrices have in the plans of `packed`, by number."""


cdef const wx_kernels * table() noexcept nogil:
    """The functions; NULL when no library is in use."""
    return _table


def use(address: int | None, path: str = "") -> None:
    """Let models that are loaded from now on use the library whose table lies at `address`; None: none.

    Raises
    ------
    BackendAbiError
        The table is of another version than this package.
    """
    global _table, _path
    cdef const wx_kernels * found
    if address is None:
        _table, _path = NULL, ""
        return
    found = <const wx_kernels *><uintptr_t>address
    if found == NULL or found.abi != WX_KERNELS_ABI or found.size != sizeof(wx_kernels):
        raise BackendAbiError(f"the kernels of {path} are of another version than this whispyx")
    _table, _path = found, path


def name() -> str | None:
    """Name of the library in use ("avx512-bf16"), or None."""
    return None if _table == NULL else (<bytes>_table.name).decode()


def path() -> str | None:
    """File of the library in use, or None."""
    return None if _table == NULL else _path


def products() -> dict[str, str]:
    """Return what matrices are multiplied with, by type."""
    if _table == NULL:
        return {}
    return {"f32": "f32", "bf16": (<bytes>_table.bf16).decode(), "int8": (<bytes>_table.i8).decode()}


def peak(str type, double seconds=0.1) -> float:
    """Return how many operations of a matrix product in `type` one thread can do per second, at the very most."""
    numbers = {"f32": WX_F32, "bf16": WX_BF16, "int8": WX_I8}
    cdef int number
    cdef double found
    if type not in numbers or not 0.0 < seconds <= 10.0:
        raise ParamsError(f"type is one of {', '.join(numbers)}, seconds at most 10; got {type!r} and {seconds}")
    if _table == NULL:
        return 0.0
    number = numbers[type]
    with nogil:
        found = _table.peak(number, seconds)
    return found


cdef class Memory:
    """A block of memory, zeroed, aligned for the kernels."""

    @staticmethod
    cdef Memory create(size_t size, str what):
        cdef Memory self = Memory.__new__(Memory)
        # Huge pages begin at their multiples. What nobody touches takes no memory: calloc maps large blocks anew.
        cdef size_t align = HUGE_PAGE if size >= 4 * <size_t>HUGE_PAGE else WX_ALIGN
        with nogil:
            self.block = calloc(1, size + align)
        if self.block == NULL:
            raise ComputeMemoryError(f"no memory for {what}: {size / 1e6:.1f} MB were asked for")
        self.ptr = <char *>((<uintptr_t>self.block + align - 1) // align * align)
        self.size = size
        prefer_huge_pages(self.ptr, size)
        return self

    cdef void close(self) noexcept:
        free(self.block)
        self.block, self.ptr, self.size = NULL, NULL, 0

    def __dealloc__(self):
        free(self.block)
