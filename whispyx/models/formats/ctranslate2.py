"""Reader of CTranslate2's Whisper folders: model.bin, config.json and a vocabulary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from whispyx.errors import ModelFormatError
from whispyx.models.convert.ct2 import Ct2File, Variable
from whispyx.models.convert.layout import TensorPlan, plan_tensors, read_any_settings

from .documents import shown
from .folder import Folder, refuse_other_things
from .hf_tokenizer import make_vocabulary, published_vocabulary, read_list, read_texts
from .manifest import GGML_TYPES, Blob, Factors, Manifest, Settings, Tensor, Vocabulary
from .rules import read_rules
from .surroundings import read_card

__all__ = ["is_folder", "read_folder"]

_WEIGHTS: Final = "model.bin"
_TYPES: Final = {
    "float32": GGML_TYPES["f32"],
    "float16": GGML_TYPES["f16"],
    "bfloat16": GGML_TYPES["bf16"],
    "int8": GGML_TYPES["i8"],
    "int16": GGML_TYPES["i16"],
}
_HEAD: Final = "decoder/projection/weight"
_EMBEDDINGS: Final = "decoder/embeddings/weight"
_MAX_LAYERS: Final = 128
# Variables with equal values are stored once, such as biases of zeros; a model is no larger than its file for that.
_MAX_SHARED_BYTES: Final = 16 << 20


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder looks like one of CTranslate2's: it has a model.bin."""
    return os.path.isfile(os.path.join(path, _WEIGHTS))


def read_folder(path: str | os.PathLike[str]) -> Manifest:
    """Read the index of a CTranslate2 Whisper model.

    Parameters
    ----------
    path : path
        Folder with model.bin (format version 6) and tokenizer.json, vocabulary.json or vocabulary.txt; config.json is
        read where it is there. Without a vocabulary the tokens are those of the published models of as many.

    Returns
    -------
    Manifest
        Open file and what lies where in it. Tensors are f32, f16, bf16, or i8 and i16 with factors, as stored; parts
        of stacked projections are rows of one variable.

    Raises
    ------
    ModelNotFoundError
        There is no such folder, or no model.bin in it.
    ModelFormatError
        A file is malformed or of another version, the model is no Whisper or computes otherwise, or a variable is
        missing, unknown, of another shape, or of a type that a weight cannot have.
    ModelError
        A file cannot be read.

    Notes
    -----
    `lang_ids` of config.json are not used: they are ids without codes, and those of English-only models are wrong in
    published files. The vocabulary names its language tokens.
    """
    folder = Folder(path)
    blob = Blob(folder.file(_WEIGHTS))
    try:
        refuse_other_things(blob)
        with Ct2File(Path(blob.name)) as model:
            settings = read_any_settings(model)
            tensors = _tensors(model, settings)
        rules = read_rules(folder.document("config.json"), settings, ("suppress_ids", "suppress_ids_begin"))
        return Manifest(
            format="ctranslate2",
            blobs=[blob],
            settings=settings,
            vocabulary=_vocabulary(folder, settings.n_vocab),
            tensors=tensors,
            alignment_heads=rules.alignment_heads,
            suppress_tokens=rules.suppress_tokens,
            begin_suppress_tokens=rules.begin_suppress_tokens,
            metadata=read_card(folder),
        )
    except BaseException:
        blob.close()
        raise


def _vocabulary(folder: Folder, n_vocab: int) -> Vocabulary:
    """The tokenizer tells which tokens are special; CTranslate2's own lists have all texts alike."""
    texts = read_texts(folder) if folder.has("tokenizer.json") else None
    for name in ("vocabulary.json", "vocabulary.txt"):
        if texts is None and folder.has(name):
            texts = read_list(folder, name)
    published = published_vocabulary(n_vocab, folder.path) if texts is None else None
    if texts is not None:
        return make_vocabulary(texts, n_vocab)
    if published is None:
        raise ModelFormatError(
            f"{folder.path}: no vocabulary (tokenizer.json, vocabulary.json or vocabulary.txt), and no published model "
            f"has {n_vocab} tokens"
        )
    return published


def _tensors(model: Ct2File, settings: Settings) -> dict[str, Tensor]:
    for side, n_layer in (("encoder", settings.n_audio_layer), ("decoder", settings.n_text_layer)):
        if n_layer > _MAX_LAYERS:
            raise model.error(f"{n_layer} layers of the {side}; at most {_MAX_LAYERS} can be meant")
    plans = plan_tensors(model, settings)
    tensors = {plan.name: _tensor(model, plan) for plan in plans}
    _check_rest(model, {plan.source for plan in plans})
    total, size = sum(tensor.n_bytes for tensor in tensors.values()), os.path.getsize(model.path)
    if total > size + _MAX_SHARED_BYTES:
        raise model.error(f"aliases make {total} bytes of weights of a file of {size} bytes")
    return tensors


def _tensor(model: Ct2File, plan: TensorPlan) -> Tensor:
    variable = model[plan.source]
    if variable.type_name not in _TYPES:
        raise model.error(
            f"{variable.name!r} is {variable.type_name}; weights can be float32, float16, bfloat16, int16 or int8"
        )
    row_bytes = variable.n_elements // variable.rows * variable.dtype.itemsize
    return Tensor(
        name=plan.name,
        shape=plan.shape,
        type=_TYPES[variable.type_name],
        blob=0,
        offset=variable.offset + plan.start * row_bytes,
        n_bytes=(plan.stop - plan.start) * row_bytes,
        factors=_factors(model, variable, plan) if variable.dtype.kind == "i" else None,
    )


def _factors(model: Ct2File, variable: Variable, plan: TensorPlan) -> Factors:
    """One for the whole variable, or one per row, of which these are the tensor's."""
    scale = model.scale_of(variable)
    if scale.type_name not in ("float32", "float16"):
        raise model.error(f"{scale.name!r} is {scale.type_name}; factors can be float32 or float16")
    kind = _TYPES[scale.type_name]
    if scale.n_elements == 1:
        return Factors(kind, 0, scale.offset, 1)
    return Factors(kind, 0, scale.offset + plan.start * scale.dtype.itemsize, plan.stop - plan.start)


def _check_rest(model: Ct2File, used: set[str]) -> None:
    """Refuse variables that change what a model computes and that nothing here would read."""
    head = model.variables.get(_HEAD)
    if head is not None and head.offset != model[_EMBEDDINGS].offset:
        raise model.error(f"{_HEAD!r} has values of its own; Whisper's output projection is its token embedding")
    known = used | {name + "_scale" for name in used} | {_HEAD, _HEAD + "_scale"}
    # Scalars are settings, those that matter were checked. Keys have no bias in Whisper; theirs are zeros in a stack.
    for name, variable in model.variables.items():
        if variable.shape and name not in known:
            raise model.error(f"the variable {shown(name)} belongs to no Whisper model of these settings")
