"""What lies beside the weights of a Hugging Face folder: settings of the sound's front end, and the model card."""

from __future__ import annotations

import os
import re
from typing import Final

import numpy as np
import numpy.typing as npt

from whispyx.constants import HOP_LENGTH, N_FFT, N_FFT_BINS, SAMPLE_RATE
from whispyx.errors import ModelFormatError
from whispyx.models.convert.filters import mel_filters

from .documents import Document, shown
from .folder import Folder

__all__ = ["read_card", "read_filters"]

_HEAD_BYTES: Final = 64 << 10
_VALUE_CHARACTERS: Final = 500
# Keys of a model card's head, and how the manifest calls them.
_CARD_KEYS: Final = {
    "license": "license",
    "license_name": "license_name",
    "license_link": "license_link",
    "language": "language",
    "base_model": "base_model",
    "model_name": "name",
    "author": "author",
    "version": "version",
    "datasets": "datasets",
}
_LICENSES: Final = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")


def read_filters(folder: Folder, n_mels: int) -> npt.NDArray[np.float32] | None:
    """Read the mel filters of preprocessor_config.json (or processor_config.json), and check its other settings.

    Returns
    -------
    numpy.ndarray or None
        float32, (n_mels, 201). None: there are none, or they are those that Whisper was trained with.

    Raises
    ------
    ModelFormatError
        The sound is prepared otherwise than for Whisper, or the filters have another shape or are not finite.
    """
    document = folder.document("preprocessor_config.json")
    if document is None:
        outer = folder.document("processor_config.json")
        document = outer.document("feature_extractor") if outer is not None else None
    if document is None:
        return None
    for key, expected in (
        ("feature_size", n_mels),
        ("sampling_rate", SAMPLE_RATE),
        ("n_fft", N_FFT),
        ("hop_length", HOP_LENGTH),
    ):
        if document.integer(key, 0, 1 << 30) not in (None, expected):
            raise document.error(key, f"{expected} is expected")
    return _filters(document, n_mels)


def _filters(document: Document, n_mels: int) -> npt.NDArray[np.float32] | None:
    rows = document.content.get("mel_filters")
    if rows is None:
        return None
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise document.error("mel_filters", "a list of rows is expected")
    sizes = {len(row) for row in rows}
    if (len(rows), sizes) not in ((n_mels, {N_FFT_BINS}), (N_FFT_BINS, {n_mels})):
        raise ModelFormatError(
            f"{document.name}: mel_filters has {len(rows)} rows of {shown(sorted(sizes))} values; "
            f"{n_mels} of {N_FFT_BINS} are expected, or the other way round"
        )
    if not all(type(value) in (int, float) and abs(value) < 1e6 for row in rows for value in row):
        raise ModelFormatError(f"{document.name}: mel_filters holds what is no number, or no small one")
    values = np.array(rows, np.float32)
    if len(rows) == N_FFT_BINS and n_mels != N_FFT_BINS:
        values = np.ascontiguousarray(values.T)
    # Weights of a filter are below 0.03; the files' digits come from several versions of the same formula.
    return None if np.allclose(values, mel_filters(n_mels), rtol=0.0, atol=1e-6) else values


def read_card(folder: Folder) -> dict[str, str]:
    """Read what the head of README.md tells, and note whether a licence lies there.

    Only simple lines are understood: `key: value`, `key: [a, b]`, and `- value` below a `key:`. Lists are joined by
    commas. Whatever else is there is passed over.
    """
    found: dict[str, list[str]] = {}
    if folder.has("README.md"):
        head = folder.head("README.md", _HEAD_BYTES).decode("utf-8", "replace")
        match = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", head, re.DOTALL | re.MULTILINE)
        key = ""
        for line in match[1].splitlines() if match else ():
            if pair := re.match(r"([\w-]+):(?:[ \t]+(.*))?$", line):
                key, value = pair[1], (pair[2] or "").strip()
                values = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
                found[key] = values
            elif item := re.match(r"[ \t]*-[ \t]+(.*)$", line):
                found.setdefault(key, []).append(item[1])
    metadata = {}
    for key, name in _CARD_KEYS.items():
        text = ", ".join(filter(None, (_plain(value) for value in found.get(key, ()))))
        if text:
            metadata[name] = text[:_VALUE_CHARACTERS]
    for name in _LICENSES:
        if os.path.isfile(os.path.join(folder.path, name)):
            metadata["license_file"] = name
            break
    return metadata


def _plain(value: str) -> str:
    """A value without quotes, comments, and characters that are not to be printed."""
    value = value.strip()
    if value[:1] in ("'", '"') and value.endswith(value[:1]) and len(value) > 1:
        value = value[1:-1]
    else:
        value = value.split(" #")[0].rstrip()
    return "".join(character for character in value if character.isprintable())
