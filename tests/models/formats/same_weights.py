"""One model in every form: the tensors of a ggml file, written as other programs would write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tests.models.ct2_maker import Ct2Model
from tests.oracle.quants import ENCODINGS, encode
from tests.oracle.reader import ModelFile
from tests.oracle.tokens import Special
from whispyx.languages import CODES

from .folder_maker import DTYPES, Stored, byte_letters, names_of, safetensors_bytes, write
from .gguf_maker import I32, Gguf, numbers, string, strings, u32
from .torch_maker import Bag, Item, Ordered, pickle_of, zip_of

Array = npt.NDArray[Any]

HEADS: Final = ((1, 0), (2, 1))
"""Alignment heads that the makers write into formats with a place for them; every model here has them."""


PUBLISHED: Final = {51904: 51865, 51868: 51865, 51968: 51866, 51871: 51866, 51872: 51864, 51867: 51864}
"""Numbers of tokens that are no published model's, and the published vocabulary that each begins with."""


def special_of(file: ModelFile) -> Special:
    """Ids of the special tokens."""
    return Special.of(PUBLISHED.get(file.settings["n_vocab"], file.settings["n_vocab"]))


def special_texts(file: ModelFile) -> list[str]:
    """Texts of the special tokens, from the end of the text on."""
    special = special_of(file)
    languages = list(CODES[: special.translate - special.sot - 1])
    names = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev"]
    names += ["nospeech", "notimestamps", *(f"{i * 0.02:.2f}" for i in range(1501))]
    texts = [f"<|{name}|>" for name in names]
    assert len(texts) == special.end - special.eot
    return texts


def added_words(file: ModelFile) -> list[str]:
    """Texts of the tokens behind the timestamps, as far as there are any."""
    return [token.decode() for token in file.tokens[special_of(file).end :]]


def words(file: ModelFile) -> list[str]:
    """The stored tokens in byte-level BPE's letters."""
    letters = byte_letters()
    eot = special_of(file).eot
    return ["".join(letters[byte] for byte in token) for token in file.tokens[:eot]]


def bits(array: Array, kind: str) -> Array:
    """An array in one of the types of ggml's files; bf16 as uint16."""
    dtype = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}[kind]
    return np.frombuffer(encode(kind, array), dtype).reshape(array.shape)


def kinds_of(file: ModelFile, kind: str | None) -> dict[str, str]:
    """The type that each tensor is written in: the one of the file, or `kind` for all of them."""
    return {name: kind or file.types[name] for name in file.tensors}


def flat_bias(name: str, array: Array) -> Array:
    """Elsewhere, biases of convolutions are vectors."""
    return array.reshape(-1) if name.endswith(".bias") else array


def layers_of(file: ModelFile) -> tuple[int, int]:
    return file.settings["n_audio_layer"], file.settings["n_text_layer"]


def huggingface(file: ModelFile, folder: Path, kind: str | None = None) -> Path:
    """A folder as `save_pretrained` of transformers leaves it."""
    s, kinds = file.settings, kinds_of(file, kind)
    tensors: dict[str, Stored] = {}
    for ours, theirs in names_of(*layers_of(file)).items():
        array = bits(flat_bias(ours, file[ours]), kinds[ours])
        tensors[f"model.{theirs}"] = kinds[ours].upper(), array
        assert kinds[ours].upper() in {*DTYPES, "BF16"}
    config = {
        "model_type": "whisper", "activation_function": "gelu", "d_model": s["n_audio_state"],
        "encoder_layers": s["n_audio_layer"], "encoder_attention_heads": s["n_audio_head"],
        "encoder_ffn_dim": 4 * s["n_audio_state"], "decoder_layers": s["n_text_layer"],
        "decoder_attention_heads": s["n_text_head"], "decoder_ffn_dim": 4 * s["n_text_state"],
        "max_source_positions": s["n_audio_ctx"], "max_target_positions": s["n_text_ctx"],
        "num_mel_bins": s["n_mels"], "vocab_size": s["n_vocab"], "scale_embedding": False,
    }  # fmt: skip
    tokens = words(file)
    added = [{"id": len(tokens) + i, "content": text, "special": True} for i, text in enumerate(special_texts(file))]
    first = len(tokens) + len(added)
    added += [{"id": first + i, "content": text, "special": False} for i, text in enumerate(added_words(file))]
    vocab = {text: i for i, text in enumerate(tokens)}
    return write(
        folder,
        {
            "config.json": config,
            "generation_config.json": {"alignment_heads": [list(pair) for pair in HEADS]},
            "model.safetensors": safetensors_bytes(tensors, {"format": "pt"}),
            "tokenizer.json": {"added_tokens": added, "model": {"type": "BPE", "vocab": vocab, "merges": []}},
        },
    )


def openai(file: ModelFile, path: Path, kind: str | None = None) -> Path:
    """A checkpoint as OpenAI publishes them. It has no vocabulary and no alignment heads."""
    bag, kinds = Bag(), kinds_of(file, kind)
    state = Ordered({name: bag.add(bits(flat_bias(name, file[name]), kinds[name])) for name in file.tensors})
    dims = {name: value for name, value in file.settings.items() if name != "ftype"}
    pickle = pickle_of({"dims": dims, "model_state_dict": state})
    items = [Item("archive/data.pkl", pickle), Item("archive/byteorder", b"little"), Item("archive/version", b"3\n")]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zip_of(items + [Item(f"archive/data/{key}", raw) for key, raw in bag.storages.items()]))
    return path


def gguf(file: ModelFile, path: Path, kind: str | None = None) -> Path:
    """A file in the layout of docs/gguf.md, with the special tokens among the others, as converters write it."""
    s, kinds, n_words = file.settings, kinds_of(file, kind), len(words(file))
    special, added = special_texts(file), added_words(file)
    settings = {
        "vocab_size": "n_vocab", "encoder.context_length": "n_audio_ctx", "encoder.embedding_length": "n_audio_state",
        "encoder.attention.head_count": "n_audio_head", "encoder.block_count": "n_audio_layer",
        "decoder.context_length": "n_text_ctx", "decoder.embedding_length": "n_text_state",
        "decoder.attention.head_count": "n_text_head", "decoder.block_count": "n_text_layer",
        "encoder.mels_count": "n_mels",
    }  # fmt: skip
    keys = {"general.architecture": string("whisper")}
    keys |= {f"whisper.{theirs}": u32(s[ours]) for theirs, ours in settings.items()}
    keys["whisper.alignment_heads"] = numbers(I32, [n for pair in HEADS for n in pair])
    keys["tokenizer.ggml.model"] = string("gpt2")
    keys["tokenizer.ggml.tokens"] = strings(words(file) + special + added)
    keys["tokenizer.ggml.token_type"] = numbers(I32, [1] * n_words + [3] * len(special) + [4] * len(added))
    tensors = {
        name: (array.shape[::-1], ENCODINGS[kinds[name]].tensor_type, encode(kinds[name], array))
        for name, array in file.tensors.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(Gguf(keys, tensors).encoded())
    return path


def ctranslate2(file: ModelFile, folder: Path, kind: str | None = None) -> Path:
    """A folder as CTranslate2's converter leaves it; "i8": the matrices in eight bits, with a factor per row."""
    s = file.settings
    arrays, halves = _stacked(file, None if kind == "i8" else kind)
    if kind == "i8":
        for name in [name for name, array in arrays.items() if array.ndim == 2 and "position" not in name]:
            rows = arrays[name].astype(np.float32)
            scale = (127 / np.abs(rows).max(axis=1)).astype(np.float32)
            arrays[name] = np.rint(rows * scale[:, None]).astype(np.int8)
            arrays[f"{name}_scale"] = scale
    for side, what in (("encoder", "audio"), ("decoder", "text")):
        arrays[f"{side}/num_heads"] = np.array(s[f"n_{what}_head"], np.int16)
    model = Ct2Model(arrays, bfloat16=halves, aliases={"decoder/projection/weight": "decoder/embeddings/weight"})
    return write(
        folder,
        {
            "model.bin": model.encoded(),
            "config.json": {"alignment_heads": [list(pair) for pair in HEADS]},
            "vocabulary.json": _all_texts(file),
        },
    )


def _all_texts(file: ModelFile) -> list[str]:
    """A text for every row of the embedding: the converter calls those without one by the names of timestamps."""
    texts = words(file) + special_texts(file) + added_words(file)
    return texts + [f"<|{i * 0.02:.2f}|>" for i in range(file.settings["n_vocab"] - len(texts))]


def _stacked(file: ModelFile, kind: str | None) -> tuple[dict[str, Array], set[str]]:
    """CTranslate2's variables, and the names of those that are bf16: queries, keys and values are one matrix there."""
    arrays: dict[str, Array] = {}
    halves: set[str] = set()
    kinds = kinds_of(file, kind)

    def put(theirs: str, *ours: str) -> None:
        parts = [bits(flat_bias(name, file[name]), kinds[name]) for name in ours]
        arrays[theirs] = np.concatenate(parts)
        if kinds[ours[0]] == "bf16":
            halves.add(theirs)

    def linear(theirs: str, *ours: str) -> None:
        put(f"{theirs}/weight", *(f"{name}.weight" for name in ours))
        zeros = np.zeros(file.settings["n_text_state"], arrays[f"{theirs}/weight"].dtype)
        named = [kinds.get(f"{name}.bias") for name in ours]
        dtype = next(found for found in named if found)
        parts = [
            bits(file[f"{name}.bias"], dtype) if found else zeros.astype(bits(zeros[:1], dtype).dtype)
            for name, found in zip(ours, named, strict=True)
        ]  # keys have no bias
        arrays[f"{theirs}/bias"] = np.concatenate(parts)
        if dtype == "bf16":
            halves.add(f"{theirs}/bias")

    def norm(theirs: str, ours: str) -> None:
        put(f"{theirs}/gamma", f"{ours}.weight")
        put(f"{theirs}/beta", f"{ours}.bias")

    for number in (1, 2):
        put(f"encoder/conv{number}/weight", f"encoder.conv{number}.weight")
        put(f"encoder/conv{number}/bias", f"encoder.conv{number}.bias")
    put("decoder/embeddings/weight", "decoder.token_embedding.weight")
    for side, last, n_layer in zip(("encoder", "decoder"), ("ln_post", "ln"), layers_of(file), strict=True):
        put(f"{side}/position_encodings/encodings", f"{side}.positional_embedding")
        norm(f"{side}/layer_norm", f"{side}.{last}")
        for index in range(n_layer):
            theirs, ours = f"{side}/layer_{index}", f"{side}.blocks.{index}"
            norm(f"{theirs}/self_attention/layer_norm", f"{ours}.attn_ln")
            linear(f"{theirs}/self_attention/linear_0", *(f"{ours}.attn.{name}" for name in ("query", "key", "value")))
            linear(f"{theirs}/self_attention/linear_1", f"{ours}.attn.out")
            if side == "decoder":
                norm(f"{theirs}/attention/layer_norm", f"{ours}.cross_attn_ln")
                linear(f"{theirs}/attention/linear_0", f"{ours}.cross_attn.query")
                linear(f"{theirs}/attention/linear_1", f"{ours}.cross_attn.key", f"{ours}.cross_attn.value")
                linear(f"{theirs}/attention/linear_2", f"{ours}.cross_attn.out")
            norm(f"{theirs}/ffn/layer_norm", f"{ours}.mlp_ln")
            linear(f"{theirs}/ffn/linear_0", f"{ours}.mlp.0")
            linear(f"{theirs}/ffn/linear_1", f"{ours}.mlp.2")
    return arrays, halves


Maker = Callable[[ModelFile, Path, "str | None"], Path]
MAKERS: Final[dict[str, Maker]] = {
    "huggingface": huggingface, "openai": openai, "gguf": gguf, "ctranslate2": ctranslate2,
}  # fmt: skip
"""By the name of the format as manifests have it. Each makes a file or folder and returns its path."""

FOLDERS: Final = ("huggingface", "ctranslate2")
WEIGHTS: Final = {"huggingface": "model.safetensors", "ctranslate2": "model.bin"}
"""The file of a folder that holds the weights."""


def weights_of(path: Path, form: str) -> Path:
    """The file with the weights of a model that a maker made."""
    return path / WEIGHTS[form] if form in FOLDERS else path
