"""A second opinion: Whisper in plain NumPy, written from the model's description and sharing no code with whispyx.

Everything here favours being easy to check over being fast. Numbers are float64 unless a caller asks otherwise.
"""

from __future__ import annotations
