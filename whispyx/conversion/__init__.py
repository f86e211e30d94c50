"""Models from any form that can be read into one file: whisper.cpp's format or GGUF, in any type of weights."""

from __future__ import annotations

from .job import convert, quantize
from .report import Report, TensorReport
from .types import TYPES, TypeChoice

__all__ = ["TYPES", "Report", "TensorReport", "TypeChoice", "convert", "quantize"]
