"""OpenBLAS for whispyx. Nothing to call: whispyx finds the plugin through the entry point `blas`."""

from pathlib import Path

__all__ = ["plugin_paths"]


def plugin_paths() -> list[str]:
    """Return the plugin's files, as the entry-point group ``whispyx.backends`` asks for them."""
    return [str(Path(__file__).resolve().parent / "libggml-blas.so")]
