"""Turn a CTranslate2 Whisper folder into one legacy ggml file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from whispyx._files import WholeFile
from whispyx.errors import ModelNotFoundError, ParamsError

from . import ggml_file
from .ct2 import Ct2File
from .filters import mel_filters
from .layout import TensorPlan, n_stored_tokens, plan_tensors, read_settings
from .vocabulary import read_vocabulary

__all__ = ["Progress", "convert"]

log = logging.getLogger("whispyx.models.convert")

Progress = Callable[[int, "int | None", str], None]
"""Called with what is done, the total (None: not known) and a word for the work; units are bytes."""


def convert(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    dtype: str = "f16",
    progress: Progress | None = None,
) -> Path:
    """Convert a CTranslate2 Whisper model to a legacy ggml file.

    Parameters
    ----------
    source : path
        Folder with `model.bin` (format version 6) and `tokenizer.json`, `vocabulary.json` or `vocabulary.txt`.
        Weights may be float32, float16, bfloat16, or int16/int8 with their factors.
    dest : path
        File to make. It appears under this name only when it is complete.
    dtype : {"f16", "f32", "bf16"}
        Type of the weight matrices. Biases, norms and position tables are always f32; convolutions are f32 in an
        f32 file and f16 otherwise.
    progress : callable, optional
        Called with (bytes done, bytes in all, "convert").

    Returns
    -------
    Path
        `dest`.

    Raises
    ------
    ParamsError
        `dtype` is unknown.
    ModelNotFoundError
        There is no `model.bin` in `source`.
    ModelFormatError
        The model is damaged, of another version, or not Whisper.
    ModelError
        A file could not be read or written.
    """
    kind = _checked(dtype)
    folder, target = Path(source), Path(dest)
    weights = folder / "model.bin"
    if not weights.is_file():
        raise ModelNotFoundError(f"{folder}: there is no model.bin (expected a folder with a CTranslate2 model)")
    if target.is_dir():
        raise ParamsError(f"{target} is a folder; name the file to make")
    with Ct2File(weights) as model:
        _write(model, folder, target, kind, progress)
    log.info("converted %s to %s (%s)", folder, target, dtype)
    return target


def _checked(dtype: str) -> ggml_file.Dtype:
    for known in ggml_file.DTYPES:
        if dtype == known:
            return known
    raise ParamsError(f"dtype {dtype!r} is unknown (expected one of {', '.join(ggml_file.DTYPES)})")


def _stored_type(plan: TensorPlan, dtype: ggml_file.Dtype) -> ggml_file.Dtype:
    if plan.role == "plain":
        return "f32"
    if plan.role == "conv" and dtype == "bf16":
        return "f16"
    return dtype


def _write(model: Ct2File, folder: Path, target: Path, dtype: ggml_file.Dtype, progress: Progress | None) -> None:
    settings = read_settings(model)
    plans = [(plan, _stored_type(plan, dtype)) for plan in plan_tensors(model, settings)]
    tokens = read_vocabulary(folder, n_stored_tokens(settings))
    total = sum(ggml_file.tensor_bytes(plan.shape, kind) for plan, kind in plans)
    with WholeFile(target) as out:
        ggml_file.write_header(out, settings.values(), dtype, mel_filters(settings.n_mels), tokens)
        done = 0
        for plan, kind in plans:
            blocks = model.blocks(plan.source, plan.start, plan.stop)
            done += ggml_file.write_tensor(out, plan.name, plan.shape, kind, blocks)
            if progress is not None:
                progress(done, total, "convert")
