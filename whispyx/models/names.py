"""The models that have a name, and where the public hub keeps each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whispyx.errors import ModelNotFoundError

__all__ = ["ALIASES", "MODELS", "KnownModel", "find", "looks_like_path", "model_names"]

_MAIN: Final = "ggerganov/whisper.cpp"


@dataclass(frozen=True)
class KnownModel:
    """A model that can be asked for by name.

    Attributes
    ----------
    name : str
        What people write.
    repository, remote_file : str
        Where the public hub has it.
    sha1 : str or None
        Checksum that the publisher states in the repository's model list, where there is one.
    """

    name: str
    repository: str
    remote_file: str
    sha1: str | None = None

    @property
    def file_name(self) -> str:
        """Name of the file in the cache."""
        return f"ggml-{self.name}.bin"


# Name, and the checksum that the model list of whisper.cpp 1.8.5 gives for the file.
_PUBLISHED: Final = {
    "tiny": "bd577a113a864445d4c299885e0cb97d4ba92b5f",
    "tiny.en": "c78c86eb1a8faa21b369bcd33207cc90d64ae9df",
    "base": "465707469ff3a37a2b9b8d8f89f2f99de7299dac",
    "base.en": "137c40403d78fd54d454da0f9bd998f78703390c",
    "small": "55356645c2b361a969dfd0ef2c5a50d530afd8d5",
    "small.en": "db8a495a91d927739e50b3fc1cc4c6b8f6c2d022",
    "medium": "fd9727b6e1217c2f614f9b698455c4ffd82463b4",
    "medium.en": "8c30f0e44ce9560643ebd10bbe50cd20eafd3723",
    "large-v1": "b1caaf735c4cc1429223d5a74f0f4d0b9b59a299",
    "large-v2": "0f4c8e34f21cf1a914c59d8b3ce882345ad349d6",
    "large-v2-q5_0": "00e39f2196344e901b3a2bd5814807a769bd1630",
    "large-v3": "ad82bf6a9043ceed055076d0fd39f5f186ff8062",
    "large-v3-q5_0": "e6e2ed78495d403bef4b7cff42ef4aaadcfea8de",
    "large-v3-turbo": "4af2b29d7ec73d781377bfd1758ca957a807e941",
    "large-v3-turbo-q5_0": "e050f7970618a659205450ad97eb95a18d69c9ee",
}

_QUANTISED: Final = (
    *(f"{size}{language}-{kind}" for size in ("tiny", "base", "small") for language in ("", ".en")
      for kind in ("q5_1", "q8_0")),
    *(f"medium{language}-{kind}" for language in ("", ".en") for kind in ("q5_0", "q8_0")),
    "large-v2-q8_0",
    "large-v3-turbo-q8_0",
)  # fmt: skip

_ELSEWHERE: Final = (
    KnownModel(
        "small.en-tdrz",
        "akashmjn/tinydiarize-whisper.cpp",
        "ggml-small.en-tdrz.bin",
        "b6c6e7e89af1a35c08e6de56b66ca6a02a2fdfa1",
    ),
    KnownModel("distil-small.en", "distil-whisper/distil-small.en", "ggml-distil-small.en.bin"),
    KnownModel("distil-medium.en", "distil-whisper/distil-medium.en", "ggml-medium-32-2.en.bin"),
    KnownModel("distil-large-v2", "distil-whisper/distil-large-v2", "ggml-large-32-2.en.bin"),
    KnownModel("distil-large-v3", "distil-whisper/distil-large-v3-ggml", "ggml-distil-large-v3.bin"),
    KnownModel("distil-large-v3.5", "distil-whisper/distil-large-v3.5-ggml", "ggml-model.bin"),
)

MODELS: Final[dict[str, KnownModel]] = {
    **{name: KnownModel(name, _MAIN, f"ggml-{name}.bin", sha1) for name, sha1 in _PUBLISHED.items()},
    **{name: KnownModel(name, _MAIN, f"ggml-{name}.bin") for name in _QUANTISED},
    **{model.name: model for model in _ELSEWHERE},
}
"""Every known model by name."""

ALIASES: Final = {"large": "large-v3", "turbo": "large-v3-turbo"}
"""Short names that the reference implementation also accepts."""


def model_names() -> tuple[str, ...]:
    """Return the names that `resolve` knows, without the aliases."""
    return tuple(MODELS)


def looks_like_path(name: str) -> bool:
    """Tell whether a text is meant as a path: it has a separator, a leading `~`, or a model file's ending."""
    separators = [separator for separator in (os.sep, os.altsep, "/") if separator]
    return (
        any(separator in name for separator in separators)
        or name.startswith("~")
        or Path(name).suffix.lower() in {".bin", ".ggml", ".gguf"}
    )


def find(name: str) -> KnownModel:
    """Return the model called `name`.

    Raises
    ------
    ModelNotFoundError
        There is none; the message has the closest names.
    """
    model = MODELS.get(ALIASES.get(name, name))
    if model is not None:
        return model
    folded = name.strip().lower().replace("_", "-").removeprefix("ggml-").removeprefix("whisper-")
    import difflib  # only for what it helps to say

    close = difflib.get_close_matches(folded, [*MODELS, *ALIASES], n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known names: {', '.join(MODELS)}"
    raise ModelNotFoundError(f"no model is called {name!r}, and there is no such file; {hint}")
