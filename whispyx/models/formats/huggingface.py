"""Reader of Hugging Face's Whisper folders: config.json, safetensors files, tokenizer, and what lies beside them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from whispyx.errors import ModelFormatError, ModelNotFoundError
from whispyx.models.convert.layout import all_tensors

from . import safetensors
from .documents import Document, shown
from .folder import Folder
from .hf_tokenizer import make_vocabulary, published_vocabulary, read_texts
from .manifest import GGML_TYPES, Blob, Manifest, Settings, Tensor, Vocabulary
from .pickles import SavedTensor, described
from .rules import Rules, check_settings, read_rules
from .surroundings import read_card, read_filters
from .torch_zip import TorchFile

__all__ = ["huggingface_name", "is_folder", "read_folder"]

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_TORCH: Final = "pytorch_model.bin"
_TYPES: Final = {"F32": GGML_TYPES["f32"], "F16": GGML_TYPES["f16"], "BF16": GGML_TYPES["bf16"]}
# Both forms of GELU are what Whisper's graph computes; "gelu" is what the published models name.
_GELU: Final = ("gelu", "gelu_new", "gelu_pytorch_tanh")
# What weights come in that this reader does not read, as (ending, what to say).
_OTHER_WEIGHTS: Final = (
    ("adapter_model.safetensors", "an adapter (LoRA) without its base model; merge them (merge_and_unload) and save"),
    ("pytorch_model.bin.index.json", "PyTorch weights in several files"),
    ("tf_model.h5", "TensorFlow weights"),
    ("flax_model.msgpack", "Flax weights"),
)

# Modules by OpenAI's names, which whisper.cpp has too, and by Hugging Face's.
_RENAMED: Final = (
    (".blocks.", ".layers."),
    (".cross_attn_ln.", ".encoder_attn_layer_norm."),
    (".attn_ln.", ".self_attn_layer_norm."),
    (".mlp_ln.", ".final_layer_norm."),
    (".cross_attn.", ".encoder_attn."),
    (".attn.", ".self_attn."),
    (".query.", ".q_proj."),
    (".key.", ".k_proj."),
    (".value.", ".v_proj."),
    (".out.", ".out_proj."),
    (".mlp.0.", ".fc1."),
    (".mlp.2.", ".fc2."),
    (".ln_post.", ".layer_norm."),
    (".ln.", ".layer_norm."),
    (".token_embedding.", ".embed_tokens."),
)


def huggingface_name(name: str) -> str:
    """Return Hugging Face's name of one of whisper.cpp's tensors, without the prefix `model.`."""
    for ours, theirs in _RENAMED:
        name = name.replace(ours, theirs)
    return re.sub(r"\.positional_embedding$", ".embed_positions.weight", name)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder looks like one of Hugging Face's: it has a config.json and no CTranslate2 model."""
    return os.path.isfile(os.path.join(path, "config.json")) and not os.path.isfile(os.path.join(path, "model.bin"))


def read_folder(path: str | os.PathLike[str]) -> Manifest:
    """Read the headers of a Whisper model as `transformers` saves it.

    Parameters
    ----------
    path : path
        Folder with config.json, model.safetensors (or model.safetensors.index.json and the files it names, or
        pytorch_model.bin), and tokenizer.json (or vocab.json with added_tokens.json and tokenizer_config.json).
        generation_config.json, preprocessor_config.json and README.md are read where they are there. Without a
        tokenizer the tokens are those of the published models of as many.

    Returns
    -------
    Manifest
        Open files and what lies where in them. Tensors are f32, f16 or bf16, as stored.

    Raises
    ------
    ModelNotFoundError
        There is no such folder, or a file that it needs is missing.
    ModelFormatError
        A file is malformed, the model is no Whisper or computes otherwise, or a tensor is missing, unknown, of another
        shape, or of a type that a weight cannot have.
    ModelError
        A file cannot be read.

    Notes
    -----
    Whisper's output projection is its token embedding. `proj_out.weight` is ignored where config.json says so
    (`tie_word_embeddings`, true by default), as `transformers` ties them after loading. Where config.json says they
    are not tied, the values could still be equal, but no header tells; such a model is refused.
    """
    folder = Folder(path)
    config = folder.document("config.json")
    if config is None:
        raise ModelNotFoundError(f"there is no config.json in {folder.path!r}")
    settings = _settings(config)
    blobs: list[Blob] = []
    try:
        entries = _entries(folder, blobs)
        tensors = _tensors(folder, settings, entries, config.flag("tie_word_embeddings", True))
        rules = _rules(folder, config, settings)
        return Manifest(
            format="huggingface",
            blobs=blobs,
            settings=settings,
            vocabulary=_vocabulary(folder, settings, rules),
            tensors=tensors,
            filters=read_filters(folder, settings.n_mels),
            alignment_heads=rules.alignment_heads,
            suppress_tokens=rules.suppress_tokens,
            begin_suppress_tokens=rules.begin_suppress_tokens,
            metadata=read_card(folder),
        )
    except BaseException:
        for blob in blobs:
            blob.close()
        raise


def _settings(config: Document) -> Settings:
    kind = config.text("model_type")
    if kind != "whisper":
        raise config.error("model_type", "only 'whisper' is a Whisper model")
    if config.content.get("quantization_config") is not None:
        raise config.error("quantization_config", "weights must be float32, float16 or bfloat16; quantise them here")
    if config.text("activation_function") not in (None, *_GELU):
        raise config.error("activation_function", "Whisper's is 'gelu'")
    if config.flag("scale_embedding", False):
        raise config.error("scale_embedding", "Whisper does not scale its embeddings")
    if not config.flag("is_encoder_decoder", True):
        raise config.error("is_encoder_decoder", "Whisper has an encoder and a decoder")
    width = config.needed("d_model", 1, 1 << 14)
    for side in ("encoder", "decoder"):
        if config.integer(f"{side}_ffn_dim", 0, 1 << 30) not in (None, 4 * width):
            raise config.error(f"{side}_ffn_dim", f"Whisper's is four times its width, {4 * width}")
    settings = Settings(
        n_vocab=config.needed("vocab_size", 1, 1_000_000),
        n_audio_ctx=config.needed("max_source_positions", 1, 1 << 14),
        n_audio_state=width,
        n_audio_head=config.needed("encoder_attention_heads", 1, 256),
        n_audio_layer=config.needed("encoder_layers", 1, 128),
        n_text_ctx=config.needed("max_target_positions", 1, 1 << 14),
        n_text_state=width,
        n_text_head=config.needed("decoder_attention_heads", 1, 256),
        n_text_layer=config.needed("decoder_layers", 1, 128),
        n_mels=config.needed("num_mel_bins", 1, 1 << 10),
    )
    check_settings(settings, config.name)
    return settings


def _entries(folder: Folder, blobs: list[Blob]) -> dict[str, safetensors.Entry]:
    if folder.has(_SINGLE):
        blobs.append(Blob(folder.file(_SINGLE)))
        return safetensors.read_header(blobs[0])[0]
    if folder.has(_INDEX):
        return safetensors.read_shards(folder, _INDEX, blobs)
    if folder.has(_TORCH):
        blobs.append(Blob(folder.file(_TORCH)))
        return _torch_entries(blobs[0])
    names = folder.names()
    for name, meaning in _OTHER_WEIGHTS:
        if name in names:
            raise ModelFormatError(
                f"{folder.path}: {name} holds {meaning}; this reader needs {_SINGLE}, or {_INDEX} and the files it "
                "names (save_pretrained(…, safe_serialization=True))"
            )
    others = [name for name in names if name.endswith(".safetensors")]
    also = f"; {shown(others)} is another variant, give it this name" if others else ""
    raise ModelNotFoundError(f"there is no {_SINGLE} in {folder.path!r}, nor {_INDEX}{also}")


def _torch_entries(blob: Blob) -> dict[str, safetensors.Entry]:
    """Entries of a file of `torch.save`, from which nothing is run."""
    file = TorchFile.read(blob)
    if not isinstance(file.content, dict):
        raise ModelFormatError(f"{blob.name}: should hold a dict of tensors, not {described(file.content)}")
    names = {number: name for name, number in _TYPES.items()}
    entries = {}
    for name, saved in file.content.items():
        if not isinstance(name, str) or not isinstance(saved, SavedTensor):
            raise ModelFormatError(
                f"{blob.name}: should hold a dict of tensors; {described(name)} is {described(saved)}"
            )
        tensor = file.tensor(name, saved)
        entries[name] = safetensors.Entry(
            name, names[tensor.type], tensor.shape, tensor.blob, tensor.offset, tensor.n_bytes
        )
    return entries


def _vocabulary(folder: Folder, settings: Settings, rules: Rules) -> Vocabulary:
    texts = read_texts(folder)
    if texts is not None:
        return make_vocabulary(texts, settings.n_vocab, rules.hints, rules.multilingual)
    published = published_vocabulary(settings.n_vocab, folder.path)
    if published is None:
        raise ModelNotFoundError(
            f"{folder.path!r} has no vocabulary (tokenizer.json or vocab.json), and no published model has "
            f"{settings.n_vocab} tokens"
        )
    return published


def _tensors(
    folder: Folder, settings: Settings, entries: Mapping[str, safetensors.Entry], tied: bool
) -> dict[str, Tensor]:
    # A model that was saved without its head (WhisperModel) has names without this prefix.
    prefix = "model." if any(name.startswith("model.") for name in entries) else ""
    rest = dict(entries)
    tensors = {}
    for plan in all_tensors(settings):
        name = prefix + huggingface_name(plan.name)
        entry = rest.pop(name, None)
        if entry is None:
            raise ModelFormatError(f"{folder.path}: the tensor {name!r} is missing")
        shape = plan.shape[:1] if re.search(r"conv\d\.bias$", plan.name) else plan.shape
        _check(folder, entry, shape)
        tensors[plan.name] = Tensor(plan.name, plan.shape, _TYPES[entry.dtype], entry.blob, entry.offset, entry.n_bytes)
    _refuse_overlaps(folder, tensors)
    head = rest.pop("proj_out.weight", None)
    if head is not None:
        _check(folder, head, (settings.n_vocab, settings.n_text_state))
        if not tied:
            raise ModelFormatError(
                f"{folder.path}: there is a proj_out.weight and config.json has tie_word_embeddings false; Whisper's "
                "output projection is its token embedding"
            )
    if rest:
        raise ModelFormatError(
            f"{folder.path}: the tensor {shown(min(rest))} belongs to no Whisper model of these settings"
            + (f" ({len(rest)} such)" if len(rest) > 1 else "")
        )
    return tensors


def _refuse_overlaps(folder: Folder, tensors: Mapping[str, Tensor]) -> None:
    """Tensors of PyTorch's files may share values; a small file must not be a model of any size for that."""
    end, previous = (0, 0), ""
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.blob, tensor.offset)):
        if (tensor.blob, tensor.offset) < end:
            raise ModelFormatError(f"{folder.path}: the tensors {previous!r} and {tensor.name!r} share values")
        end, previous = (tensor.blob, tensor.offset + tensor.n_bytes), tensor.name


def _check(folder: Folder, entry: safetensors.Entry, shape: tuple[int, ...]) -> None:
    if entry.shape != shape:
        raise ModelFormatError(
            f"{folder.path}: the tensor {entry.name!r} has the shape {shown(entry.shape)}; config.json makes it {shape}"
        )
    if entry.dtype not in _TYPES:
        raise ModelFormatError(
            f"{folder.path}: the tensor {entry.name!r} is {entry.dtype}; weights can be {', '.join(_TYPES)}"
        )


def _rules(folder: Folder, config: Document, settings: Settings) -> Rules:
    """What to suppress, where times come from; older folders have that in config.json."""
    generation = folder.document("generation_config.json") or config
    rules = read_rules(generation, settings, ("suppress_tokens", "begin_suppress_tokens"))
    if "is_multilingual" in generation.content:
        rules.multilingual = generation.flag("is_multilingual", True)
    for key, text in (
        ("eos_token_id", "<|endoftext|>"),
        ("decoder_start_token_id", "<|startoftranscript|>"),
        ("prev_sot_token_id", "<|startofprev|>"),
        ("no_timestamps_token_id", "<|notimestamps|>"),
    ):
        number = generation.content.get(key)
        if type(number) is int:
            rules.hints.setdefault(text, number)
    rules.hints.update(generation.ids("lang_to_id") or {})
    for task, number in (generation.ids("task_to_id") or {}).items():
        rules.hints[f"<|{task}|>"] = number
    return rules
