QUANTIZATION_FACTOR: int
FTYPE_NAMES: dict[int, str]
MODEL_TYPES: dict[int, str]
FIELDS: tuple[str, ...]

class HParams:
    n_vocab: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    n_mels: int
    ftype: int
    qntvr: int
    is_multilingual: bool
    n_languages: int
    def __init__(self, *values: int, n_languages: int | None = None, multilingual: bool = True) -> None: ...
    @property
    def model_type(self) -> str: ...
    @property
    def ftype_name(self) -> str: ...
    def as_dict(self) -> dict[str, int]: ...
