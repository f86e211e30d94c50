"""Whisper speech recognition on ggml backends that are loaded at run time."""
