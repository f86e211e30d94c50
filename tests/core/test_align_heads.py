"""Alignment heads: the presets, and what is refused before anything is loaded."""

from __future__ import annotations

import pytest

from whispyx._core.align.heads import NAMES, PRESETS, check_heads, preset_for, preset_name, resolve
from whispyx._core.hparams import HParams
from whispyx.errors import ParamsError

# Vocabulary, decoder layers, width, heads per layer, encoder layers of the published models.
SHAPES = {
    "tiny.en": (51864, 4, 384, 6, 4),
    "tiny": (51865, 4, 384, 6, 4),
    "base.en": (51864, 6, 512, 8, 6),
    "base": (51865, 6, 512, 8, 6),
    "small.en": (51864, 12, 768, 12, 12),
    "small": (51865, 12, 768, 12, 12),
    "medium.en": (51864, 24, 1024, 16, 24),
    "medium": (51865, 24, 1024, 16, 24),
    "large-v1": (51865, 32, 1280, 20, 32),
    "large-v2": (51865, 32, 1280, 20, 32),
    "large-v3": (51866, 32, 1280, 20, 32),
    "large-v3-turbo": (51866, 4, 1280, 20, 32),
}
# (layer,head) pairs as whisper.h's engine lists them.
HEADS = {
    "tiny.en": "(1,0) (2,0) (2,5) (3,0) (3,1) (3,2) (3,3) (3,4)",
    "tiny": "(2,2) (3,0) (3,2) (3,3) (3,4) (3,5)",
    "base.en": "(3,3) (4,7) (5,1) (5,5) (5,7)",
    "base": "(3,1) (4,2) (4,3) (4,7) (5,1) (5,2) (5,4) (5,6)",
    "small.en": (
        "(6,6) (7,0) (7,3) (7,8) (8,2) (8,5) (8,7) (9,0) (9,4) (9,8) (9,10) (10,0) (10,1) (10,2) (10,3) "
        "(10,6) (10,11) (11,2) (11,4)"
    ),
    "small": "(5,3) (5,9) (8,0) (8,4) (8,7) (8,8) (9,0) (9,7) (9,9) (10,5)",
    "medium.en": (
        "(11,4) (14,1) (14,12) (14,14) (15,4) (16,0) (16,4) (16,9) (17,12) (17,14) (18,7) (18,10) (18,15) "
        "(20,0) (20,3) (20,9) (20,14) (21,12)"
    ),
    "medium": "(13,15) (15,4) (15,15) (16,1) (20,0) (23,4)",
    "large-v1": "(9,19) (11,2) (11,4) (11,17) (22,7) (22,11) (22,17) (23,2) (23,15)",
    "large-v2": (
        "(10,12) (13,17) (16,11) (16,12) (16,13) (17,15) (17,16) (18,4) (18,11) (18,19) (19,11) (21,2) (21,3) "
        "(22,3) (22,9) (22,12) (23,5) (23,7) (23,13) (25,5) (26,1) (26,12) (27,15)"
    ),
    "large-v3": "(7,0) (10,17) (12,18) (13,12) (16,1) (17,14) (19,11) (21,4) (24,1) (25,6)",
    "large-v3-turbo": "(2,4) (2,11) (3,3) (3,6) (3,11) (3,14)",
}


def model(vocab: int = 51865, n_layer: int = 6, width: int = 512, n_head: int = 8, n_audio_layer: int = 6) -> HParams:
    return HParams(vocab, 1500, width, n_head, n_audio_layer, 448, width, n_head, n_layer, 80, 1)


def test_every_preset_of_whisper_h_is_there_in_its_order() -> None:
    assert len(NAMES) == 15
    assert list(PRESETS) == list(NAMES[3:]) == list(SHAPES)
    assert resolve(6, -1, None, model())[0] == (3, 1)
    assert resolve(5, -1, None, model())[1] == (4, 7)


@pytest.mark.parametrize("name", SHAPES)
def test_a_preset_fits_its_model(name: str) -> None:
    heads = resolve(name, -1, None, model(*SHAPES[name]))
    assert [f"({layer},{head})" for layer, head in heads] == HEADS[name].split()
    if name != "large-v1":
        assert preset_for(model(*SHAPES[name])) == (name, -1)


def test_large_v1_is_known_by_its_name_only() -> None:
    assert preset_for(model(*SHAPES["large-v1"]), "ggml-large-v1.bin") == ("large-v1", -1)


@pytest.mark.parametrize(("n_layer", "n_top"), [(2, 1), (3, 2), (6, 3), (12, 6)])
def test_a_model_of_another_shape_uses_the_upper_half_of_its_layers(n_layer: int, n_top: int) -> None:
    hparams = model(51864, n_layer, 1024, 16, 24)
    assert preset_for(hparams) == ("n_top_most", n_top)
    assert len(resolve("n_top_most", n_top, None, hparams)) == n_top * 16


def test_the_top_layers_come_whole() -> None:
    assert resolve(1, 2, None, model(n_layer=3, n_head=2)) == ((1, 0), (1, 1), (2, 0), (2, 1))


def test_own_heads_are_sorted_by_layer_only() -> None:
    assert resolve("custom", -1, [(2, 5), (0, 3), (2, 1)], model()) == ((0, 3), (2, 5), (2, 1))


@pytest.mark.parametrize("spelling", ["WHISPER_AHEADS_LARGE_V3_TURBO", "large-v3-turbo", "Large_V3_Turbo", 14])
def test_a_preset_may_be_spelt_as_in_whisper_h(spelling: str | int) -> None:
    assert preset_name(spelling) == "large-v3-turbo"


@pytest.mark.parametrize(
    ("preset", "n_top", "custom", "says"),
    [
        ("none", -1, None, "needs heads"),
        (0, -1, None, "needs heads"),
        ("huge", -1, None, "no alignment heads preset"),
        (15, -1, None, "no alignment heads preset"),
        (-1, -1, None, "no alignment heads preset"),
        (1.5, -1, None, "name or a number"),
        ("n_top_most", 0, None, "1 to 6"),
        ("n_top_most", 7, None, "1 to 6"),
        ("n_top_most", -1, None, "1 to 6"),
        ("n_top_most", True, None, "1 to 6"),
        ("custom", -1, None, "no alignment heads are given"),
        ("custom", -1, [], "no alignment heads are given"),
        ("custom", -1, [(6, 0)], "has no alignment head"),
        ("custom", -1, [(0, 8)], "has no alignment head"),
        ("custom", -1, [(-1, 0)], "has no alignment head"),
        ("custom", -1, [(0, -1)], "has no alignment head"),
        ("custom", -1, [(0, 1), (0, 1)], "twice"),
        ("custom", -1, [(0,)], "pairs"),
        ("custom", -1, [(0, "x")], "pairs"),
        ("custom", -1, 7, "pairs"),
        ("large-v3", -1, None, "not for this model"),
    ],
)
def test_what_does_not_fit_is_refused(preset: object, n_top: int, custom: object, says: str) -> None:
    with pytest.raises(ParamsError, match=says):
        resolve(preset, n_top, custom, model())  # type: ignore[arg-type]


def test_heads_are_checked_against_the_model() -> None:
    assert check_heads([(5, 7)], model()) == ((5, 7),)
