"""The settings at the head of a model file, checked against what a Whisper model can be."""

from whispyx._weight_types import FILE_TYPES
from whispyx.errors import ModelFormatError

QUANTIZATION_FACTOR = 1000   # ftype in the file = weight type + 1000 x quantisation version

FTYPE_NAMES = {number: name for name, number in FILE_TYPES.items()} | {
    15: "iq2_xxs", 16: "iq2_xs", 17: "iq3_xxs", 18: "iq1_s", 19: "iq4_nl", 20: "iq3_s", 21: "iq2_s", 22: "iq4_xs",
    23: "iq1_m", 25: "mxfp4", 26: "nvfp4", 27: "q1_0", 28: "q2_0",      # nobody writes these
}

MODEL_TYPES = {4: "tiny", 6: "base", 12: "small", 24: "medium", 32: "large"}   # by number of encoder layers

LARGEST_PUBLISHED = 51866   # tokens of large-v3 and turbo

FIELDS = (
    "n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx", "n_text_state",
    "n_text_head", "n_text_layer", "n_mels", "ftype",
)

# Bounds far outside every published model; they keep sizes computed from the settings inside 64-bit arithmetic and
# graphs inside their node budget.
_BOUNDS = {
    "n_vocab": (51864, 1 << 20),
    "n_audio_ctx": (1, 16384),
    "n_audio_state": (1, 16384),
    "n_audio_head": (1, 256),
    "n_audio_layer": (1, 128),
    "n_text_ctx": (16, 16384),
    "n_text_state": (1, 16384),
    "n_text_head": (1, 256),
    "n_text_layer": (1, 128),
}


cdef class HParams:
    """Settings of a model, in the order of the file; see `FIELDS`.

    Raises
    ------
    ModelFormatError
        A value is outside what a Whisper model can have, or two values contradict each other.
    """

    def __init__(self, *values: int, n_languages: int | None = None, multilingual: bool = True) -> None:
        if self.n_vocab:
            raise TypeError("the settings are made already")
        if len(values) != len(FIELDS):
            raise TypeError(f"HParams takes {len(FIELDS)} values, got {len(values)}")
        named = dict(zip(FIELDS, values))
        # A file that names its special tokens may have few others.
        bounds = _BOUNDS if n_languages is None else _BOUNDS | {"n_vocab": (64, 1 << 20)}
        for name, (low, high) in bounds.items():
            if not low <= named[name] <= high:
                raise ModelFormatError(f"{name} is {named[name]}; a Whisper model has {low} to {high}")
        if named["n_mels"] not in (80, 128):
            raise ModelFormatError(f"n_mels is {named['n_mels']}; a Whisper model has 80 or 128")
        if named["n_audio_state"] != named["n_text_state"]:
            raise ModelFormatError(
                f"n_audio_state {named['n_audio_state']} and n_text_state {named['n_text_state']} must be equal"
            )
        for side in ("audio", "text"):
            state, head = named[f"n_{side}_state"], named[f"n_{side}_head"]
            if state % head:
                raise ModelFormatError(f"n_{side}_state {state} is not a multiple of n_{side}_head {head}")
        ftype = named["ftype"]
        if ftype < 0 or ftype % QUANTIZATION_FACTOR not in FTYPE_NAMES:
            raise ModelFormatError(f"ftype {ftype} names no weight type that ggml knows")
        (self.n_vocab, self.n_audio_ctx, self.n_audio_state, self.n_audio_head, self.n_audio_layer, self.n_text_ctx,
         self.n_text_state, self.n_text_head, self.n_text_layer, self.n_mels) = values[:10]
        self.ftype = ftype % QUANTIZATION_FACTOR
        self.qntvr = ftype // QUANTIZATION_FACTOR
        self.is_multilingual = self.n_vocab >= 51865
        self.n_languages = self.n_vocab - 51765 - (1 if self.is_multilingual else 0)
        if self.n_vocab > LARGEST_PUBLISHED:    # there are no more languages: these are a fine-tuned model's own tokens
            self.n_languages = 100 if self.n_mels == 128 else 99
        if n_languages is not None:
            self.is_multilingual, self.n_languages = multilingual and n_languages > 0, n_languages or 99

    @property
    def model_type(self) -> str:
        """Size name by number of encoder layers: "tiny" to "large", or "unknown"."""
        return MODEL_TYPES.get(self.n_audio_layer, "unknown")

    @property
    def ftype_name(self) -> str:
        """Weight type of the file, such as "f16" or "q5_1"."""
        return FTYPE_NAMES[self.ftype]

    def as_dict(self) -> dict[str, int]:
        """Return the settings by name, ftype without its quantisation version."""
        return {name: getattr(self, name) for name in FIELDS}

    def __repr__(self) -> str:
        return f"HParams({', '.join(f'{k}={v}' for k, v in self.as_dict().items())})"
