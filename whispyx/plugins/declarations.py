"""The C functions that `abi` calls, and how `_declarations.py` is made of them.

    python -m whispyx.plugins.declarations

Reading C declarations takes cffi longer than all else that loading a plugin needs, so it is done when they change, and
its result is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

DECLARATIONS: Final = """
void *       ggml_backend_init(void);
int          ggml_backend_score(void);
const char * whispyx_plugin_ggml_version(void);

int          whispyx_kernels_abi(void);
int          whispyx_kernels_score(void);
void *       whispyx_kernels(void);

/* never called: any function of the base library, to see which base a library is bound to */
void         ggml_backend_buffer_init(void);

void *       dlopen(const char * path, int flags);
const char * dlerror(void);

typedef struct {
    const char * dli_fname;
    void *       dli_fbase;
    const char * dli_sname;
    void *       dli_saddr;
} Dl_info;
int dladdr(const void * address, Dl_info * info);
"""
TARGET: Final = Path(__file__).with_name("_declarations.py")


def generated() -> str:
    """Return what `_declarations.py` has to be, as the cffi that is installed writes it."""
    import tempfile

    import cffi

    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    ffi.set_source("whispyx.plugins._declarations", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TARGET.name
        ffi.emit_python_code(str(path))
        text = path.read_text("utf-8")
    head = "# Made by `python -m whispyx.plugins.declarations`; change declarations.py instead.\n"
    return head + "# fmt: off\n# ruff: noqa\n# mypy: ignore-errors\n" + text


def main() -> None:
    TARGET.write_text(generated(), "utf-8")


if __name__ == "__main__":
    main()
