"""Models of any form that can be read: told what they are, and written as one file, in any type of weights."""

from __future__ import annotations

from .inspecting import FileDescription, ModelDescription, TypeCount, inspect_model
from .job import convert, quantize
from .memory import MemoryNeed
from .report import Report, TensorReport
from .types import TYPES, TypeChoice
from .verify import Verification, verify

__all__ = [
    "TYPES",
    "FileDescription",
    "MemoryNeed",
    "ModelDescription",
    "Report",
    "TensorReport",
    "TypeChoice",
    "TypeCount",
    "Verification",
    "convert",
    "inspect_model",
    "quantize",
    "verify",
]
