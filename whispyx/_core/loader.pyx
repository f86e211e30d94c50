"""Reads the weights of a model that has been described, straight into the buffers of the devices that will use them.

What a file stores in another type than ggml computes with, is converted a piece at a time on the way.
"""

import hashlib
import math

from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc

from whispyx._core.description cimport Description, Record
from whispyx._core.devices cimport Device, Watch
from whispyx._core.external cimport check_external
from whispyx._core.handles cimport Buffer, Meta
from whispyx._core.hparams cimport HParams
from whispyx._core.intake cimport Intake
from whispyx._core.mapping cimport Mapping
from whispyx._core.mel cimport Filters
from whispyx._core.packed cimport Packed
from whispyx._core.reading cimport Rows, placed_bytes, read_floats, rows_of
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport (
    GGML_TYPE_F32,
    ggml_context,
    ggml_mul_mat,
    ggml_new_tensor,
    ggml_new_tensor_2d,
    ggml_op_name,
    ggml_permute,
    ggml_reshape_2d,
    ggml_set_name,
    ggml_tensor,
    ggml_transpose,
    ggml_type,
    ggml_type_name,
    ggml_view_2d,
)
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
    ggml_backend_buffer_t,
    ggml_backend_buffer_is_host,
    ggml_backend_buft_get_alignment,
    ggml_backend_buffer_type_t,
    ggml_backend_dev_buffer_type,
    ggml_backend_dev_supports_op,
    ggml_backend_tensor_get,
    ggml_backend_tensor_set,
)

from whispyx._core.weights import ENCODER
from whispyx.constants import N_FFT_BINS
from whispyx.errors import BackendUnsupportedError, ModelFormatError
from whispyx.fallback import Fallback

FINGERPRINTED = ("encoder.conv1.bias", "encoder.conv2.bias", "encoder.ln_post.weight", "encoder.ln_post.bias")
STAGING_BYTES = 8 << 20


cdef class Loaded:
    """A model that was read."""


cdef Filters filters_of(bytes raw, HParams hp):
    import numpy as np      # not at the top: weights are read meanwhile

    return Filters(np.frombuffer(raw, dtype="<f4").reshape(hp.n_mels, N_FFT_BINS))


cdef str fingerprint_of(list records):
    """Return what tells networks apart: of the encoder's tensors that every file of a model stores as they are."""
    cdef Record record
    cdef dict by_name = {record.name: record for record in records}
    if not by_name:
        return None
    found = hashlib.sha256()
    for name in FINGERPRINTED:
        found.update(read_floats(by_name[name]).tobytes())
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


cdef Weights place(str where, list records, list devices, list fallbacks, bint mmap):
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
                f"{where}: no device multiplies by type {ggml_type_name(<ggml_type>record.type).decode()}"
                f" ({record.name})"
            )
        if device is not candidates[0]:
            key = (device.name, ggml_type_name(<ggml_type>record.type).decode())
            count, size = elsewhere.get(key, (0, 0))
            elsewhere[key] = (count + 1, size + placed_bytes(record))
        if device.name not in meta_of:
            meta_of[device.name] = (device, Meta.create(len(records), 0), [])
        meta = meta_of[device.name][1]
        meta_of[device.name][2].append(record)
        for i in range(len(record.shape)):
            ne[i] = record.shape[i]
        tensor = ggml_new_tensor(meta.ptr, <ggml_type>record.type, len(record.shape), ne)
        ggml_set_name(tensor, record.name.encode())
        weights.tensors[record.name] = <uintptr_t>tensor
    for (used, type_name), (count, size) in elsewhere.items():
        fallbacks.append(Fallback(candidates[0].name, used,
                                  f"it does not multiply by {type_name}: {count} tensors, {size / 1e6:.1f} MB"))
    for device, meta, theirs in meta_of.values():
        weights.metas.append(meta)
        if mmap and device.kind == "CPU" and leave_in_files(weights, theirs, device):
            continue
        weights.buffers.append(Buffer.for_tensors(
            meta, ggml_backend_dev_buffer_type(device.dev), GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
            f"the weights of {where} on {device.name}"))
    return weights


cdef bint leave_in_files(Weights weights, list records, Device device) except -1:
    """Have tensors of the CPU used where they are in their files, if those can be mapped. Return whether all are.

    They must be there in the type that ggml computes with, and begin where ggml lets tensors begin: in a GGUF file all
    of them do.
    """
    cdef Record record
    cdef ggml_tensor * tensor
    cdef Mapping mapping
    cdef Buffer buffer
    cdef ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(device.dev)
    cdef size_t align = ggml_backend_buft_get_alignment(buft)
    cdef bint all_of_them = True
    cdef dict found = {}
    for record in records:
        tensor = weights.get(record.name)
        if record.stored != record.type or record.offset % align:
            all_of_them = False
            continue
        if record.source not in found:
            mapping, buffer = Mapping.of(record.source), None
            if mapping is not None:
                buffer = Buffer.around(device, mapping.ptr, mapping.size)
            if buffer is not None:
                weights.maps.append(mapping)
                weights.mapped.append(buffer)
            found[record.source] = mapping, buffer
        mapping, buffer = found[record.source]
        if buffer is None:
            all_of_them = False
        else:
            buffer.put(tensor, mapping.ptr + record.offset, record.name)
            weights.mapped_bytes += record.n_bytes
    return all_of_them


cdef int read_data(Description model, list records, Weights weights, object progress) except -1:
    cdef Record record
    cdef ggml_tensor * tensor
    cdef ggml_tensor * far = NULL
    cdef char * staging = NULL
    cdef size_t row_bytes
    cdef long long at, n, rows, done = model.size() - sum([record.n_bytes for record in records])
    cdef Rows reader = Rows()
    try:
        for record in records:
            tensor = weights.get(record.name)
            if weights.is_mapped(tensor):
                done += record.n_bytes
                continue
            row_bytes, rows = placed_bytes(record) // rows_of(record), rows_of(record)
            if ggml_backend_buffer_is_host(<ggml_backend_buffer_t>tensor.buffer):
                reader.read(record, 0, rows, <char *>tensor.data)
            else:
                if staging == NULL:
                    staging = <char *>malloc(STAGING_BYTES)
                    if staging == NULL:
                        raise MemoryError
                at, far = 0, tensor
                if row_bytes > STAGING_BYTES:
                    raise ModelFormatError(f"{model.name}: a row of {record.name} has {row_bytes} bytes")
                while at < rows:
                    n = min(<long long>(STAGING_BYTES // row_bytes), rows - at)
                    reader.read(record, at, n, staging)
                    with nogil:
                        ggml_backend_tensor_set(tensor, staging, at * row_bytes, n * row_bytes)
                    at += n
                weights.watch.check()
            done += record.n_bytes
            if progress is not None:
                progress(done, model.size())
        if far != NULL:
            # Nobody waits for what is written. What can be read has arrived, and all before it.
            with nogil:
                ggml_backend_tensor_get(far, staging, 0, 4)
            weights.watch.check()
    finally:
        free(staging)
    return 0


cdef Weights read_packed(Description model, list records, str compute, object progress, bint mmap):
    """Read the weights for the kernels: each piece of a tensor is packed as it comes, and its bytes are forgotten."""
    cdef Weights weights = Weights.__new__(Weights)
    cdef Record record
    cdef Intake intake = Intake()
    weights.has_encoder = any([record.name.startswith(ENCODER) for record in records])
    weights.watch = Watch.of([])
    weights.packed = Packed.create(model.hparams, model.vocab, compute, weights.has_encoder, mmap)
    intake.table = weights.packed.table
    for record in records:
        intake.begin(record.source, record.factors)
        weights.packed.take(intake, record.name, record.offset, record.stored, math.prod(record.shape))
    intake.run(model.size(), progress)
    weights.packed.intake = None
    if weights.packed.mapping is not None:
        weights.maps.append(weights.packed.mapping)
        weights.mapped_bytes += weights.packed.mapped_bytes
    weights.n_tensors = len(records)
    return weights


cdef Loaded load(Description model, list devices, object progress, object encoder, str compute, bint mmap):
    """Read a model. `devices` is in scheduler order, CPU last; `progress(done, total)` counts bytes of its files.

    With an encoder from outside, that of the model is left in the file: it can be most of it. `compute` is the
    precision of the kernels, or "exact" for tensors as in the file, in memory of the devices. With `mmap`, what can be
    used where it lies in its file stays there.
    """
    cdef Record record
    cdef Loaded loaded = Loaded.__new__(Loaded)
    cdef list records = model.records
    loaded.hparams, loaded.vocab, loaded.fallbacks = model.hparams, model.vocab, []
    loaded.fingerprint = fingerprint_of(records)
    if encoder is not None:
        check_external(encoder, loaded.hparams, model.name, loaded.fingerprint)    # before gigabytes are read
        records = [record for record in records if not record.name.startswith(ENCODER)]
    if records and compute != "exact":
        loaded.weights = read_packed(model, records, compute, progress, mmap)
    elif records:
        loaded.weights = place(model.name, records, devices, loaded.fallbacks, mmap)
        read_data(model, records, loaded.weights, progress)
        loaded.weights.bind(loaded.hparams)
    model.check_unchanged()
    loaded.filters = filters_of(model.filters, loaded.hparams)
    if records and progress is not None:
        progress(model.size(), model.size())
    return loaded
