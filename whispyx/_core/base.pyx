"""The ggml base library that the core is bound to, checked before any of its functions is called.

When another package, or the program that embeds Python, has shown a ggml of its own to the whole process
(RTLD_GLOBAL, or a library it is linked to), or LD_LIBRARY_PATH leads to another installation's, the dynamic linker
gives the core those functions instead of ours. Their structs may have another layout, so calling one could end the
process. Importing this module raises an error instead; import it before the rest of the core.
"""

from __future__ import annotations

import os

from whispyx._ggml.ggml cimport ggml_version as c_ggml_version

from whispyx.errors import BackendAbiError

__all__ = ["base_library", "ggml_version"]

cdef extern from "dlfcn.h" nogil:
    ctypedef struct Dl_info:
        const char * dli_fname

    int dladdr(const void * address, Dl_info * info)

def base_library() -> str:
    """Return the real path of the library that the core's ggml calls go to."""
    cdef Dl_info info
    if dladdr(<const void *>&c_ggml_version, &info) == 0 or info.dli_fname == NULL:
        raise BackendAbiError("the dynamic linker does not say which library the ggml functions come from")
    return os.path.realpath(os.fsdecode(<bytes>info.dli_fname))


def ggml_version() -> str:
    """Return the version of ggml that computes."""
    return (<bytes>c_ggml_version()).decode("utf-8", "replace")


cdef int check() except -1:
    found = base_library()
    ours = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "_native", "libwhispyx-ggml-base.so"))
    if found != ours:
        raise BackendAbiError(
            f"the dynamic linker has bound whispyx to the ggml in {found} instead of its own in {ours}; another "
            "package or the program shows that library to the whole process (import whispyx before it, or keep it from "
            "being loaded with RTLD_GLOBAL), or LD_LIBRARY_PATH leads to it"
        )
    return 0


check()
