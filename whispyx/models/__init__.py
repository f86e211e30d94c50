"""Models by name, and recordings to try them with.

`resolve` turns a name or a path into a file; `whispyx.models.convert.convert` makes such files.
"""

from __future__ import annotations

from .cache import cache_root
from .names import ALIASES, MODELS, KnownModel, model_names
from .progress import Progress
from .resolve import cached_path, resolve
from .samples import SAMPLES, Sample, sample

__all__ = [
    "ALIASES",
    "MODELS",
    "SAMPLES",
    "KnownModel",
    "Progress",
    "Sample",
    "cache_root",
    "cached_path",
    "model_names",
    "resolve",
    "sample",
]
