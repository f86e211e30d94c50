"""Reads the legacy ggml model file: settings, mel filters, vocabulary, tensors (layout: docs/model-format.md).

The file is walked twice. The first walk reads every header and checks it against the settings and the file's size;
nothing is allocated from a number that the file claims before that number is known to fit. The second walk reads the
data straight into the buffers of the devices that will use it.
"""

import hashlib
import math
from collections.abc import Sequence

from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc

from whispyx._core.devices cimport Device, Watch
from whispyx._core.external cimport check_external
from whispyx._core.handles cimport Buffer, Meta
from whispyx._core.hparams cimport HParams
from whispyx._core.intake cimport Intake
from whispyx._core.mel cimport Filters
from whispyx._core.packed cimport Packed
from whispyx._core.source cimport Source
from whispyx._core.vocab cimport Vocab
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F32,
    ggml_blck_size,
    ggml_context,
    ggml_get_type_traits,
    ggml_mul_mat,
    ggml_new_tensor,
    ggml_new_tensor_2d,
    ggml_op_name,
    ggml_permute,
    ggml_reshape_2d,
    ggml_row_size,
    ggml_set_name,
    ggml_tensor,
    ggml_to_float_t,
    ggml_transpose,
    ggml_type,
    ggml_type_name,
    ggml_view_2d,
)
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
    ggml_backend_buffer_t,
    ggml_backend_buffer_is_host,
    ggml_backend_dev_buffer_type,
    ggml_backend_dev_supports_op,
    ggml_backend_tensor_get,
    ggml_backend_tensor_set,
)

from whispyx._core.hparams import FIELDS
from whispyx._core.vocab import MAX_TOKEN_BYTES
from whispyx._core.weights import CONV, ENCODER, F32_ONLY, expected_tensors
from whispyx.errors import BackendUnsupportedError, ModelFormatError
from whispyx.fallback import Fallback

MAGIC = 0x67676D6C
FINGERPRINTED = ("encoder.conv1.bias", "encoder.conv2.bias", "encoder.ln_post.weight", "encoder.ln_post.bias")
MAX_NAME_BYTES = 64
N_FFT_BINS = 201
STAGING_BYTES = 8 << 20

# ggml's tensor type numbers that a weight may have; the gaps are types that ggml dropped or uses only inside graphs.
WEIGHT_TYPES = frozenset({0, 1, 2, 3, 6, 7, 8, *range(10, 15), *range(16, 24), 29, 30, 34, 35, 39, 40, 41, 42})
CONV_TYPES = frozenset({0, 1})

# First bytes of things people download instead of a model.
_NOT_A_MODEL = (
    (b"<", "a web page (HTML or XML): the download most likely returned an error page"),
    (b"vers", "a Git LFS pointer: the file itself was not downloaded (git lfs pull)"),
    (b"GGUF", "a GGUF file; whispyx reads the legacy ggml format of whisper.cpp (ggml-*.bin)"),
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint; convert it to the ggml format first"),
)


cdef class Loaded:
    """What a file holds."""


cdef int read_magic(Source source, str what) except -1:
    """Refuse a file that is not `what`, and say what it is instead where that can be told."""
    if source.size == 0:
        raise ModelFormatError(f"{source.name} is empty")
    head = source.take(4, "the magic number")
    if int.from_bytes(head, "little") != MAGIC:
        for start, meaning in _NOT_A_MODEL:
            if head.startswith(start):
                raise ModelFormatError(f"{source.name} is {meaning}")
        raise ModelFormatError(f"{source.name} is not {what}: it starts with {head!r}, not b'lmgg'")
    return 0


cdef HParams read_hparams(Source source):
    read_magic(source, "a ggml Whisper model")
    try:
        return HParams(*[source.i32(name) for name in FIELDS])
    except ModelFormatError as error:
        raise ModelFormatError(f"{source.name}: {error}") from None


cdef bytes read_filter_bytes(Source source, HParams hp):
    cdef int n_mel = source.i32("the number of mel bands")
    cdef int n_fft = source.i32("the number of frequency bins")
    if n_mel != hp.n_mels or n_fft != N_FFT_BINS:
        raise ModelFormatError(
            f"{source.name}: the mel filters are {n_mel} x {n_fft}, expected {hp.n_mels} x {N_FFT_BINS}"
        )
    return source.take(<size_t>n_mel * n_fft * 4, "the mel filters")


cdef Filters filters_of(bytes raw, HParams hp):
    import numpy as np      # not at the top: weights are read meanwhile

    return Filters(np.frombuffer(raw, dtype="<f4").reshape(hp.n_mels, N_FFT_BINS))


cdef Filters read_filters(Source source, HParams hp):
    return filters_of(read_filter_bytes(source, hp), hp)


cdef Vocab read_vocab(Source source, HParams hp):
    cdef int n = source.i32("the vocabulary count"), i, length
    if not 0 < n <= hp.n_vocab:
        raise ModelFormatError(f"{source.name} stores {n} tokens; the model has {hp.n_vocab}")
    stored = []
    # Two small fields 50,000 times: a name for each is made only where the file ends inside of it.
    for i in range(n):
        length = source.i32("" if source.size - source.pos >= 4 else f"the length of token {i}")
        if not 0 <= length <= MAX_TOKEN_BYTES:
            raise ModelFormatError(
                f"{source.name}: token {i} has {length} bytes; at most {MAX_TOKEN_BYTES} are plausible"
            )
        stored.append(source.take(length, "" if source.size - source.pos >= length else f"token {i}"))
    return Vocab(hp, stored)


cdef class Record:
    """Header of one tensor in the file."""


def tensor_bytes(int type, shape: Sequence[int]) -> int | None:
    """Return the bytes that a tensor takes in a file; None where type and shape are not possible.

    Parameters
    ----------
    type
        ggml's type number.
    shape
        Up to four dimensions, the fastest one first; none is a single value.
    """
    cdef int block
    if type not in WEIGHT_TYPES or any([n < 0 for n in shape]):
        return None
    block = ggml_blck_size(<ggml_type>type)
    if shape and shape[0] % block:
        return None
    return math.prod(shape) // block * <size_t>ggml_row_size(<ggml_type>type, block) if shape or block == 1 else None


cdef Record read_record(Source source, dict expected):
    cdef Record record = Record.__new__(Record)
    cdef int n_dims = source.i32("the number of dimensions of a tensor")
    cdef int n_name = source.i32("the length of a tensor's name")
    cdef int block
    record.type = source.i32("the type of a tensor")
    if not 1 <= n_dims <= 4:
        raise ModelFormatError(f"{source.name}: a tensor has {n_dims} dimensions (1 to 4 are possible)")
    if not 1 <= n_name <= MAX_NAME_BYTES:
        raise ModelFormatError(
            f"{source.name}: a tensor's name has {n_name} bytes (1 to {MAX_NAME_BYTES} are possible)"
        )
    dims = [source.i32("a tensor's dimensions") for _ in range(n_dims)]
    record.name = source.take(n_name, "a tensor's name").decode("utf-8", "backslashreplace")
    if record.name not in expected:
        raise ModelFormatError(
            f"{source.name} holds a tensor {record.name!r} that a Whisper model of these settings has not"
        )
    record.shape, rule = expected[record.name]
    if _significant(dims) != _significant(record.shape):
        raise ModelFormatError(f"{source.name}: {record.name} has shape {dims}, the settings say {list(record.shape)}")
    allowed = {0} if rule == F32_ONLY else CONV_TYPES if rule == CONV else WEIGHT_TYPES
    if record.type not in allowed:
        raise ModelFormatError(
            f"{source.name}: {record.name} has type number {record.type}, which is not possible for it"
        )
    block = ggml_blck_size(<ggml_type>record.type)
    if record.shape[0] % block:
        raise ModelFormatError(
            f"{source.name}: rows of {record.name} have {record.shape[0]} values, not a multiple of the"
            f" {block} that type {ggml_type_name(<ggml_type>record.type).decode()} packs together"
        )
    record.n_bytes = ggml_row_size(<ggml_type>record.type, record.shape[0])
    for n in record.shape[1:]:
        record.n_bytes *= n
    record.offset = source.pos
    if record.offset + <long long>record.n_bytes > source.size:
        raise ModelFormatError(
            f"{source.name} ends early: {record.name} needs {record.n_bytes} bytes at offset {record.offset},"
            f" the file has {source.size} bytes"
        )
    source.seek(record.offset + record.n_bytes)
    return record


def _significant(dims) -> list[int]:
    """Dimensions other than one: a bias may be stored as (1, n) or (n)."""
    return [int(n) for n in dims if n != 1]


cdef list read_records(Source source, HParams hp):
    expected = expected_tensors(hp)
    cdef dict found = {}
    cdef Record record
    while source.pos < source.size:
        record = read_record(source, expected)
        if record.name in found:
            raise ModelFormatError(f"{source.name} holds tensor {record.name} twice")
        found[record.name] = record
    missing = [name for name in expected if name not in found]
    if found and missing:
        raise ModelFormatError(
            f"{source.name} lacks {len(missing)} of {len(expected)} tensors, the first is {missing[0]}"
        )
    return list(found.values())


cdef object read_floats(Source source, Record record):
    """Return a tensor as float32, the slowest dimension first: a matrix is (n_out, n_in)."""
    cdef float[::1] values
    cdef char * raw = NULL
    cdef ggml_to_float_t to_float
    cdef int64_t n
    import numpy as np

    out = np.empty(record.shape[::-1], dtype=np.float32)
    values = out.reshape(-1)
    n = values.shape[0]
    source.seek(record.offset)
    if record.type == GGML_TYPE_F32:
        source.read(&values[0], record.n_bytes, record.name)
        return out
    to_float = ggml_get_type_traits(<ggml_type>record.type).to_float
    if to_float == NULL:
        raise ModelFormatError(f"{source.name}: {record.name} has type number {record.type}, no kind of floats")
    raw = <char *>malloc(record.n_bytes)
    if raw == NULL:
        raise MemoryError
    try:
        source.read(raw, record.n_bytes, record.name)
        with nogil:
            to_float(raw, &values[0], n)
    finally:
        free(raw)
    return out


cdef str fingerprint_of(Source source, list records):
    """Return what tells networks apart: of the encoder's tensors that every file of a model stores as they are."""
    cdef Record record
    cdef dict by_name = {record.name: record for record in records}
    if not by_name:
        return None
    found = hashlib.sha256()
    for name in FINGERPRINTED:
        record = by_name[name]      # f32, as every file has it
        source.seek(record.offset)
        found.update(source.take(record.n_bytes, name))
    return found.hexdigest()[:32]


cdef bint multiplies(Device device, ggml_context * scratch, int type, long long n_in, long long n_out):
    """Whether a device multiplies by a weight of this type and shape."""
    cdef ggml_tensor * w = ggml_new_tensor_2d(scratch, <ggml_type>type, n_in, n_out)
    cdef ggml_tensor * x = ggml_new_tensor_2d(scratch, GGML_TYPE_F32, n_in, 1)
    return ggml_backend_dev_supports_op(device.dev, ggml_mul_mat(scratch, w, x))


cdef int check_holds_tensors(Device device) except -1:
    """Raise unless a device accepts tensors and views of them, which compute nothing.

    ggml ends the process where a device has a weight in its memory and says no to these.
    """
    cdef Meta meta = Meta.create(8, 0)
    cdef ggml_tensor * w = ggml_new_tensor_2d(meta.ptr, GGML_TYPE_F32, 64, 64)
    cdef ggml_tensor * views[5]
    cdef int i
    views[0] = w
    views[1] = ggml_view_2d(meta.ptr, w, 64, 8, w.nb[1], 0)
    views[2] = ggml_reshape_2d(meta.ptr, w, 32, 128)
    views[3] = ggml_permute(meta.ptr, w, 0, 2, 1, 3)
    views[4] = ggml_transpose(meta.ptr, w)
    for i in range(5):
        if not ggml_backend_dev_supports_op(device.dev, views[i]):
            name = (<bytes>ggml_op_name(views[i].op)).decode()
            raise BackendUnsupportedError(
                f"device {device.name} of plugin {device.backend!r} refuses the operation {name}, which computes "
                "nothing and which every device must accept"
            )
    return 0


cdef Weights place(Source source, list records, list devices, list fallbacks):
    """Make a tensor for every record, each in memory of the first device that can multiply by it.

    What the first device cannot hold for that reason is added to `fallbacks`.
    """
    cdef Weights weights = Weights.__new__(Weights)
    weights.watch = Watch.of(devices)
    cdef Record record
    cdef Device device
    cdef Meta meta, scratch = Meta.create(3 * len(devices) * len(records), 0)
    cdef dict meta_of = {}
    cdef ggml_tensor * tensor
    cdef int64_t ne[4]
    cdef int i
    cdef dict able = {}, elsewhere = {}
    candidates = [d for d in devices if d.kind != "ACCEL"]   # accelerators compute on host memory of the CPU
    for device in candidates:
        check_holds_tensors(device)
    for record in records:
        for device in candidates:
            if len(record.shape) != 2 or record.shape[0] == 1:
                break
            key = (device.name, record.type, record.shape)
            if key not in able:
                able[key] = multiplies(device, scratch.ptr, record.type, record.shape[0], record.shape[1])
            if able[key]:
                break
        else:
            raise ModelFormatError(
                f"{source.name}: no device multiplies by type {ggml_type_name(<ggml_type>record.type).decode()}"
                f" ({record.name})"
            )
        if device is not candidates[0]:
            key = (device.name, ggml_type_name(<ggml_type>record.type).decode())
            count, size = elsewhere.get(key, (0, 0))
            elsewhere[key] = (count + 1, size + record.n_bytes)
        if device.name not in meta_of:
            meta_of[device.name] = (device, Meta.create(len(records), 0))
        meta = meta_of[device.name][1]
        for i in range(len(record.shape)):
            ne[i] = record.shape[i]
        tensor = ggml_new_tensor(meta.ptr, <ggml_type>record.type, len(record.shape), ne)
        ggml_set_name(tensor, record.name.encode())
        weights.tensors[record.name] = <uintptr_t>tensor
    for (used, type_name), (count, size) in elsewhere.items():
        fallbacks.append(Fallback(candidates[0].name, used,
                                  f"it does not multiply by {type_name}: {count} tensors, {size / 1e6:.1f} MB"))
    for device, meta in meta_of.values():
        weights.metas.append(meta)
        weights.buffers.append(Buffer.for_tensors(
            meta, ggml_backend_dev_buffer_type(device.dev), GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
            f"the weights of {source.name} on {device.name}"))
    return weights


cdef int read_data(Source source, list records, Weights weights, object progress) except -1:
    cdef Record record
    cdef ggml_tensor * tensor
    cdef ggml_tensor * far = NULL
    cdef char * staging = NULL
    cdef size_t at, n
    try:
        for record in records:
            source.seek(record.offset)
            tensor = weights.get(record.name)
            if ggml_backend_buffer_is_host(<ggml_backend_buffer_t>tensor.buffer):
                source.read(tensor.data, record.n_bytes, record.name)
            else:
                if staging == NULL:
                    staging = <char *>malloc(STAGING_BYTES)
                    if staging == NULL:
                        raise MemoryError
                at, far = 0, tensor
                while at < record.n_bytes:
                    n = min(<size_t>STAGING_BYTES, record.n_bytes - at)
                    source.read(staging, n, record.name)
                    with nogil:
                        ggml_backend_tensor_set(tensor, staging, at, n)
                    at += n
                weights.watch.check()
            if progress is not None:
                progress(source.pos, source.size)
        if far != NULL:
            # Nobody waits for what is written. What can be read has arrived, and all before it.
            with nogil:
                ggml_backend_tensor_get(far, staging, 0, 4)
            weights.watch.check()
    finally:
        free(staging)
    return 0


cdef Weights read_packed(Source source, list records, HParams hp, str compute, object progress):
    """Read the weights for the kernels: each piece of a tensor is packed as it comes, and its bytes are forgotten."""
    cdef Weights weights = Weights.__new__(Weights)
    cdef Record record
    cdef Intake intake = Intake()
    weights.has_encoder = any([record.name.startswith(ENCODER) for record in records])
    weights.watch = Watch.of([])
    weights.packed = Packed.create(hp, compute, weights.has_encoder)
    intake.table = weights.packed.table
    for record in records:
        weights.packed.take(intake, record.name, record.offset, record.type, math.prod(record.shape))
    intake.run(source, progress)
    weights.packed.intake = None
    weights.n_tensors = len(records)
    return weights


cdef Loaded load(Source source, list devices, object progress, object encoder, str compute):
    """Read a model. `devices` is in scheduler order, CPU last; `progress(done, total)` counts bytes of the file.

    With an encoder from outside, that of the model is left in the file: it can be most of it. `compute` is the
    precision of the kernels, or "exact" for tensors as in the file, in memory of the devices.
    """
    cdef Record record
    cdef Loaded loaded = Loaded.__new__(Loaded)
    loaded.hparams = read_hparams(source)
    filters = read_filter_bytes(source, loaded.hparams)
    loaded.vocab = read_vocab(source, loaded.hparams)
    loaded.fallbacks = []
    cdef list records = read_records(source, loaded.hparams)
    loaded.fingerprint = fingerprint_of(source, records)
    if encoder is not None:
        check_external(encoder, loaded.hparams, source.name, loaded.fingerprint)    # before gigabytes are read
        records = [record for record in records if not record.name.startswith(ENCODER)]
    if records and compute != "exact":
        loaded.weights = read_packed(source, records, loaded.hparams, compute, progress)
        source.check_unchanged()
    elif records:
        loaded.weights = place(source, records, devices, loaded.fallbacks)
        read_data(source, records, loaded.weights, progress)
        source.check_unchanged()
        loaded.weights.bind(loaded.hparams)
    loaded.filters = filters_of(filters, loaded.hparams)
    if records and progress is not None and source.pos < source.size:
        progress(source.size, source.size)
    return loaded
