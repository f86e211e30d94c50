"""Modules of whispyx that the build uses before whispyx can be imported: read by their path.

`manifest` and `probes` import nothing but Python's own library, so that this works.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from tools.build import ROOT

__all__ = ["manifest", "probes"]


def _load(name: str) -> ModuleType:
    full = f"tools.build._whispyx_{name}"
    spec = importlib.util.spec_from_file_location(full, ROOT / "whispyx" / "plugins" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from whispyx.plugins import manifest, probes
else:
    manifest = _load("manifest")
    probes = _load("probes")
