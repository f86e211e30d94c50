"""From a source of whatever kind to the description of a model.

A path, bytes or a file object is a file of whisper.cpp. Other formats come as the manifest that
`whispyx.models.formats` makes of their headers; what it says is checked here as if it were a file.
"""

import math

from whispyx._core.description cimport Description, Record, check_record
from whispyx._core.ggmlfile cimport describe as describe_ggml
from whispyx._core.hparams cimport HParams
from whispyx._core.source cimport Source
from whispyx._core.vocab cimport Vocab
from whispyx._ggml.ggml cimport (
    GGML_TYPE_BF16,
    GGML_TYPE_F16,
    GGML_TYPE_F32,
    GGML_TYPE_I8,
    GGML_TYPE_I16,
    ggml_blck_size,
    ggml_row_size,
    ggml_type,
)

from whispyx._core.description import WEIGHT_TYPES
from whispyx._core.source import FileSource, MemorySource, open_source
from whispyx._core.weights import CONV, F32_ONLY, expected_tensors
from whispyx._weight_types import FILE_TYPES, GGML_TYPES
from whispyx.constants import N_FFT_BINS
from whispyx.errors import ModelFormatError
from whispyx.languages import CODES

MOST_LISTED = 5             # tensors that a message names

_FILE_TYPE_OF = {GGML_TYPES[name]: number for name, number in FILE_TYPES.items()}
"""whisper.cpp's number of a file by ggml's of its tensors."""


cdef Description describe(object source):
    """Read all but the weights. Whoever asked closes it."""
    cdef Source opened
    if hasattr(source, "blobs"):
        return from_manifest(source)
    opened = open_source(source)
    try:
        return describe_ggml(opened)
    except BaseException:
        opened.close()
        raise


cdef Description from_manifest(object manifest):
    cdef Description found = Description.__new__(Description)
    found.name, found.manifest, found.sources = manifest.name, manifest, []
    try:
        for blob in manifest.blobs:
            found.sources.append(MemorySource(blob.data, blob.name) if blob.path is None else FileSource(blob.path))
        found.hparams, found.vocab = settings_of(manifest)
        found.filters = filters_of(manifest, found.hparams)
        found.records = records_of(manifest, found)
        found.alignment_heads = manifest.alignment_heads
    except BaseException:
        found.close()
        raise
    return found


cdef tuple settings_of(object manifest):
    """Settings and vocabulary. The special tokens that a manifest names may stand anywhere."""
    cdef HParams hp
    vocabulary = manifest.vocabulary
    languages = vocabulary.languages
    stored = [tensor.type for tensor in manifest.tensors.values() if len(tensor.shape) == 2]
    common = max(set(stored), key=stored.count) if stored else <int>GGML_TYPE_F16
    file_type = _FILE_TYPE_OF.get(common, FILE_TYPES["f16"])
    if languages is not None and tuple(languages) != tuple(CODES[:len(languages)]):
        raise ModelFormatError(
            f"{manifest.name}: the languages {', '.join(languages)} are not those of Whisper in its order")
    try:
        special = vocabulary.special
        hp = HParams(*manifest.settings.values(), file_type,
                     n_languages=None if special is None else len(languages or ()),
                     multilingual=vocabulary.multilingual)
        return hp, Vocab(hp, list(vocabulary.tokens), special, vocabulary.hidden)
    except ModelFormatError as error:
        raise ModelFormatError(f"{manifest.name}: {error}") from None


cdef bytes filters_of(object manifest, HParams hp):
    if manifest.filters is None or manifest.filters.shape != (hp.n_mels, N_FFT_BINS):
        found = None if manifest.filters is None else manifest.filters.shape
        raise ModelFormatError(f"{manifest.name}: the mel filters are {found}, expected {(hp.n_mels, N_FFT_BINS)}")
    return manifest.filters.astype("<f4").tobytes()


cdef list records_of(object manifest, Description found):
    expected = expected_tensors(found.hparams)
    missing = [name for name in expected if name not in manifest.tensors]
    extra = [name for name in manifest.tensors if name not in expected]
    for what, names in (("lacks", missing), ("holds unknown", extra)):
        if names:
            more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
            raise ModelFormatError(f"{manifest.name} {what} tensors: {', '.join(names[:MOST_LISTED])}{more}")
    return [record_of(tensor, expected[name], found) for name, tensor in manifest.tensors.items()]


cdef Record record_of(object tensor, tuple wanted, Description found):
    cdef Record record = Record.__new__(Record)
    cdef Source source
    shape, rule = wanted
    record.name, record.shape, record.stored, record.offset = tensor.name, shape, tensor.type, tensor.offset
    source = record.source = found.sources[tensor.blob]
    given = tuple(reversed(tensor.shape))
    if [n for n in given if n != 1] != [n for n in shape if n != 1]:
        raise ModelFormatError(f"{source.name}: {tensor.name} has shape {tensor.shape}, the settings say {shape[::-1]}")
    integers = record.stored in (GGML_TYPE_I8, GGML_TYPE_I16)
    if record.stored not in WEIGHT_TYPES and not integers:
        raise ModelFormatError(f"{source.name}: {tensor.name} has type number {tensor.type}, which no weight has")
    if shape[0] % ggml_blck_size(<ggml_type>record.stored):
        raise ModelFormatError(f"{source.name}: rows of {tensor.name} have {shape[0]} values, which type number "
                               f"{tensor.type} cannot pack together")
    record.type = placed_type(record.stored, rule)
    check_record(record, rule, source.name)
    record.n_bytes = math.prod(shape[1:]) * <size_t>ggml_row_size(<ggml_type>record.stored, shape[0])
    if tensor.n_bytes != record.n_bytes or tensor.offset < 0 or tensor.offset + tensor.n_bytes > source.size:
        raise ModelFormatError(
            f"{source.name}: {tensor.name} takes {record.n_bytes} bytes; {tensor.n_bytes} at offset {tensor.offset} "
            f"are announced, the file has {source.size}"
        )
    record.factors = factors_of(tensor, found) if integers else None
    return record


cdef int placed_type(int stored, str rule) noexcept:
    """What ggml computes with: f32 where it must be, f16 for convolutions, else the type of the file."""
    if rule == F32_ONLY:
        return GGML_TYPE_F32
    if rule == CONV:
        return GGML_TYPE_F32 if stored == GGML_TYPE_F32 else GGML_TYPE_F16
    return GGML_TYPE_F16 if stored == GGML_TYPE_I8 or stored == GGML_TYPE_I16 else stored


cdef object factors_of(object tensor, Description found):
    """What the integers of a tensor are divided by: float32, one or one per row."""
    cdef Source source
    import numpy as np

    given = tensor.factors
    if given is None:
        raise ModelFormatError(f"{found.name}: the integers of {tensor.name} come without factors")
    if given.n not in (1, tensor.shape[0]) or given.type not in (GGML_TYPE_F32, GGML_TYPE_F16):
        raise ModelFormatError(f"{found.name}: {tensor.name} has {given.n} factors of type number {given.type}")
    source = found.sources[given.blob]
    source.seek(given.offset)
    kind = np.dtype("<f4" if given.type == GGML_TYPE_F32 else "<f2")
    values = np.frombuffer(source.take(given.n * kind.itemsize, f"factors of {tensor.name}"), kind).astype(np.float32)
    if not np.isfinite(values).all() or (values == 0).any():
        raise ModelFormatError(f"{source.name}: a factor of {tensor.name} is zero or no number")
    return values
