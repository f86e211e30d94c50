"""Conversion of CTranslate2 Whisper folders to legacy ggml files."""

from __future__ import annotations

from .filters import mel_filters
from .job import convert
from .vocabulary import read_vocabulary

__all__ = ["convert", "mel_filters", "read_vocabulary"]
