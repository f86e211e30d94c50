"""What both folder formats say about decoding, and the bounds of a Whisper model's settings."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from whispyx.errors import ModelFormatError

from .documents import Document, shown
from .manifest import Settings

__all__ = ["Rules", "check_settings", "read_rules"]

log = logging.getLogger("whispyx.models.formats")


def check_settings(settings: Settings, name: str) -> None:
    """Raise ModelFormatError where settings contradict each other, or the mel bands are not Whisper's."""
    if settings.n_mels not in (80, 128):
        raise ModelFormatError(f"{name}: {settings.n_mels} mel bands are not Whisper's (80 or 128)")
    for side, width, heads in (
        ("encoder", settings.n_audio_state, settings.n_audio_head),
        ("decoder", settings.n_text_state, settings.n_text_head),
    ):
        if width % heads:
            raise ModelFormatError(f"{name}: the {side} has {heads} heads, which do not divide its width {width}")


@dataclass(slots=True)
class Rules:
    """Of a generation_config.json or of CTranslate2's config.json."""

    alignment_heads: tuple[tuple[int, int], ...] | None = None
    suppress_tokens: tuple[int, ...] | None = None
    begin_suppress_tokens: tuple[int, ...] | None = None
    multilingual: bool | None = None
    hints: dict[str, int] = field(default_factory=dict)
    """Ids by the text of special and language tokens."""


def read_rules(document: Document | None, settings: Settings, keys: tuple[str, str]) -> Rules:
    """Read `alignment_heads` and the two lists of suppressed tokens that `keys` names.

    What a model of these settings does not have is left out, with a warning: distilled models come with the alignment
    heads of their teachers, which have more layers.
    """
    if document is None:
        return Rules()
    heads = document.pairs("alignment_heads")
    if heads is not None and not (
        heads and all(0 <= layer < settings.n_text_layer and 0 <= head < settings.n_text_head for layer, head in heads)
    ):
        log.warning("%s: alignment_heads %s are not in this model; they are ignored", document.name, shown(heads))
        heads = None
    if heads is not None:
        heads = tuple(dict.fromkeys(heads))
    always, first = (_suppressed(document, key, settings.n_vocab) for key in keys)
    return Rules(heads, always, first)


def _suppressed(document: Document, key: str, n_vocab: int) -> tuple[int, ...] | None:
    numbers = document.integers(key)
    if numbers is None:
        return None
    known = tuple(dict.fromkeys(number for number in numbers if 0 <= number < n_vocab))
    if any(not 0 <= number < n_vocab for number in numbers):
        log.warning("%s: %s names tokens that the model does not have; they are ignored", document.name, key)
    return known
