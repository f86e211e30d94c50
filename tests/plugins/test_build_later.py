"""`whispyx backends build`: plugins compiled later, against the base library that is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.plugins.toolkit import ask
from whispyx.plugins import elf


def test_a_plugin_that_is_built_later_is_bound_to_the_base_that_is_here(built: Callable[[str], Path]) -> None:
    for name in ("blas", "rpc"):
        needed = elf.inspect(str(built(name) / f"libggml-{name}.so")).needed
        assert [library for library in needed if "ggml" in library] == ["libwhispyx-ggml-base.so"]


def test_blas_loads_with_the_openblas_beside_it(built: Callable[[str], Path]) -> None:
    folder = built("blas")
    outcome = ask("answer(attempt('blas'))", env={"WHISPYX_BACKEND_PATH": str(folder)})
    assert outcome["selected"] == ["BLAS", "CPU"]
    assert (folder / "libscipy_openblas.so").is_file()
