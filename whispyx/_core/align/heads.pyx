"""Which cross-attention heads of a model follow the sound, so that their weights tell when a token is spoken.

The presets are those published with the models (openai/whisper) under the names of whisper.h.
"""

from operator import index

from whispyx._core.hparams cimport HParams

from whispyx.errors import ParamsError

# In the order of whisper_alignment_heads_preset: a preset's place is its number.
NAMES = (
    "none", "n_top_most", "custom", "tiny.en", "tiny", "base.en", "base", "small.en", "small", "medium.en", "medium",
    "large-v1", "large-v2", "large-v3", "large-v3-turbo",
)

# Per preset "layer: heads", layers ascending.
_TABLE = {
    "tiny.en": "1: 0; 2: 0 5; 3: 0 1 2 3 4",
    "tiny": "2: 2; 3: 0 2 3 4 5",
    "base.en": "3: 3; 4: 7; 5: 1 5 7",
    "base": "3: 1; 4: 2 3 7; 5: 1 2 4 6",
    "small.en": "6: 6; 7: 0 3 8; 8: 2 5 7; 9: 0 4 8 10; 10: 0 1 2 3 6 11; 11: 2 4",
    "small": "5: 3 9; 8: 0 4 7 8; 9: 0 7 9; 10: 5",
    "medium.en": "11: 4; 14: 1 12 14; 15: 4; 16: 0 4 9; 17: 12 14; 18: 7 10 15; 20: 0 3 9 14; 21: 12",
    "medium": "13: 15; 15: 4 15; 16: 1; 20: 0; 23: 4",
    "large-v1": "9: 19; 11: 2 4 17; 22: 7 11 17; 23: 2 15",
    "large-v2": "10: 12; 13: 17; 16: 11 12 13; 17: 15 16; 18: 4 11 19; 19: 11; 21: 2 3; 22: 3 9 12; 23: 5 7 13; 25: 5; "
                "26: 1 12; 27: 15",
    "large-v3": "7: 0; 10: 17; 12: 18; 13: 12; 16: 1; 17: 14; 19: 11; 21: 4; 24: 1; 25: 6",
    "large-v3-turbo": "2: 4 11; 3: 3 6 11 14",
}


def _pairs(text):
    for entry in text.split(";"):
        layer, _, heads = entry.partition(":")
        yield from ((int(layer), int(head)) for head in heads.split())


PRESETS = {name: tuple(_pairs(text)) for name, text in _TABLE.items()}

# By how many frames of 10 ms attention follows the sound (negative: it looks ahead), where that has been measured.
LAGS = {PRESETS["base"]: -5, PRESETS["tiny.en"]: 11}

# What a model of this shape is: layers of encoder and decoder, width of the decoder, heads per layer.
_SHAPES = {
    (4, 4, 384, 6): "tiny",
    (6, 6, 512, 8): "base",
    (12, 12, 768, 12): "small",
    (24, 24, 1024, 16): "medium",
    (32, 32, 1280, 20): "large",
    (32, 4, 1280, 20): "turbo",
}


def preset_name(preset) -> str:
    """Return a preset's name in lower case.

    Parameters
    ----------
    preset
        A name ("base.en", "n_top_most", also as in whisper.h: "WHISPER_AHEADS_BASE_EN") or a number of whisper.h's
        enum whisper_alignment_heads_preset.

    Raises
    ------
    ParamsError
        There is no such preset.
    """
    if isinstance(preset, str):
        name = preset.lower().removeprefix("whisper_aheads_")
        for known in NAMES:
            if name.replace("_", "-").replace(".", "-") == known.replace("_", "-").replace(".", "-"):
                return known
    else:
        try:
            number = index(preset)
        except TypeError:
            raise ParamsError(f"an alignment heads preset is a name or a number, not {preset!r}") from None
        if 0 <= number < len(NAMES):
            return NAMES[number]
    raise ParamsError(f"there is no alignment heads preset {preset!r}; there are {', '.join(NAMES)}")


def check_heads(heads, HParams hparams not None) -> tuple[tuple[int, int], ...]:
    """Return (layer, head) pairs in ascending order of layers, within a layer as given.

    Raises
    ------
    ParamsError
        No head, a head twice, or one that the model does not have.
    """
    found = []
    try:
        for layer, head in heads or ():
            found.append((index(layer), index(head)))
    except (TypeError, ValueError):
        raise ParamsError(f"alignment heads are pairs of layer and head number, not {heads!r}") from None
    if not found:
        raise ParamsError("no alignment heads are given")
    for layer, head in found:
        if not 0 <= layer < hparams.n_text_layer or not 0 <= head < hparams.n_text_head:
            raise ParamsError(
                f"the model has no alignment head (layer {layer}, head {head}): it has {hparams.n_text_layer} decoder "
                f"layers of {hparams.n_text_head} heads, counted from 0"
            )
    if len(set(found)) < len(found):
        raise ParamsError(f"an alignment head is given twice: {found}")
    return tuple(sorted(found, key=lambda pair: pair[0]))


def resolve(preset, n_top, custom, HParams hparams not None) -> tuple[tuple[int, int], ...]:
    """Return the heads to align with.

    Parameters
    ----------
    preset
        See `preset_name`. "none" is refused: who wants alignment has to say which heads.
    n_top
        For "n_top_most": all heads of this many layers, counted from the last one.
    custom
        For "custom": pairs of layer and head number.
    hparams
        The model.

    Returns
    -------
    tuple of (layer, head)
        Layers ascending.

    Raises
    ------
    ParamsError
        Unknown preset, a preset of a larger model, `n_top` out of range, or heads that the model lacks.
    """
    name = preset_name(preset)
    if name == "none":
        raise ParamsError("alignment by attention needs heads: choose a preset, n_top_most or custom")
    if name == "custom":
        return check_heads(custom, hparams)
    if name == "n_top_most":
        n_layer = hparams.n_text_layer
        if isinstance(n_top, bool) or not isinstance(n_top, int) or not 1 <= n_top <= n_layer:
            raise ParamsError(f"n_top is {n_top!r}; the model has 1 to {n_layer} decoder layers")
        return tuple([(i, j) for i in range(n_layer - n_top, n_layer) for j in range(hparams.n_text_head)])
    try:
        return check_heads(PRESETS[name], hparams)
    except ParamsError as error:
        raise ParamsError(f"the preset {name} is not for this model: {error}") from None


def preset_for(HParams hparams not None, name=None) -> tuple[str, int]:
    """Guess the preset of a model by its shape.

    Parameters
    ----------
    hparams
        The model.
    name
        What the model is called, where that is known; it only decides between large-v1 and large-v2, which have one
        shape.

    Returns
    -------
    (preset, n_top)
        For `resolve`. A model of a shape that was never published with heads, such as a distilled one, gets the
        upper half of its decoder's layers, openai/whisper's default; for others n_top is -1.
    """
    shape = (hparams.n_audio_layer, hparams.n_text_layer, hparams.n_text_state, hparams.n_text_head)
    size = _SHAPES.get(shape)
    if size is None:
        return "n_top_most", (hparams.n_text_layer + 1) // 2
    if size == "turbo":
        return "large-v3-turbo", -1
    if size == "large":
        if hparams.n_languages > 99:
            return "large-v3", -1
        return ("large-v1" if "v1" in str(name or "").lower() else "large-v2"), -1
    return (size if hparams.is_multilingual else f"{size}.en"), -1
