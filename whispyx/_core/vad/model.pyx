"""Reads the Silero network in ggml's file layout (docs/model-format.md), and lays its weights out for computing.

The layout is fixed: magic, type, version, sizes, then tensor records up to the end. Every number is checked against
what the 16 kHz network can have before anything is allocated from it.

Channels are padded to a multiple of 16 by weights and biases of zero, which changes no result and lets the matrix
kernels of ggml run without remainders. A convolution is kept as one matrix per tap.
"""

import numpy as np

from whispyx._core.devices cimport Device
from whispyx._core.handles cimport Buffer, Meta
from whispyx._core.ggmlfile cimport read_magic
from whispyx._core.source cimport Source
from whispyx._ggml.ggml cimport GGML_TYPE_F16, GGML_TYPE_F32, ggml_new_tensor_2d, ggml_nbytes, ggml_tensor
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
    ggml_backend_dev_buffer_type,
    ggml_backend_tensor_set,
)

from whispyx._core.devices import cpu_device
from whispyx._core.ggmlfile import located
from whispyx.errors import ModelFormatError

TYPE = b"silero-16k"
N_BINS = N_FFT // 2 + 1
MAX_CHANNELS = 1024
MAX_NAME_BYTES = 64
PAD = 16

_F32, _F16 = 0, 1
_WIDTH = {_F32: ("<f4", 4), _F16: ("<f2", 2)}


cdef class VadWeights:
    cdef void close(self) noexcept:
        if self.buffer is not None:
            self.buffer.close()
        if self.meta is not None:
            self.meta.close()


cdef int expect(Source source, str what, int wanted) except -1:
    cdef int found = source.i32(what)
    if found != wanted:
        raise ModelFormatError(f"{source.name}: {what} is {found}; a 16 kHz Silero network has {wanted}")
    return 0


cdef int channels(Source source, str what) except -1:
    cdef int found = source.i32(what)
    if not 1 <= found <= MAX_CHANNELS:
        raise ModelFormatError(f"{source.name}: {what} is {found}; 1 to {MAX_CHANNELS} are possible")
    return found


cdef int read_type(Source source) except -1:
    read_magic(source, "a ggml voice activity model (ggml-silero-*.bin)")
    cdef int length = source.i32("the length of the model's type")
    if length != len(TYPE) or source.take(length, "the model's type") != TYPE:
        raise ModelFormatError(f"{source.name} is not a voice activity model of the type {TYPE.decode()}")
    return 0


cdef tuple read_sizes(Source source):
    """Return (version, channels of the input and of every layer's output, n_hidden)."""
    cdef int i
    version = tuple([source.i32("the model's version") for _ in range(3)])
    expect(source, "the window's length", N_WINDOW)
    expect(source, "the context's length", N_CONTEXT)
    expect(source, "the number of encoder layers", N_LAYERS)
    widths = [N_BINS]
    for i in range(N_LAYERS):
        expect(source, f"the input channels of layer {i}", widths[i])
        widths.append(channels(source, f"the output channels of layer {i}"))
        expect(source, f"the kernel size of layer {i}", N_TAPS)
    expect(source, "the size of the LSTM's input", widths[N_LAYERS])
    hidden = channels(source, "the size of the LSTM's state")
    expect(source, "the input channels of the final layer", hidden)
    expect(source, "the output channels of the final layer", 1)
    return version, widths, hidden


def expected_tensors(widths: list[int], hidden: int) -> dict[str, tuple[tuple[int, ...], bool]]:
    """Return name -> (shape in file order, whether f16 is possible) of every tensor."""
    table = {"_model.stft.forward_basis_buffer": ((N_FFT, 1, 2 * N_BINS), True)}
    for i in range(N_LAYERS):
        prefix = f"_model.encoder.{i}.reparam_conv"
        table[f"{prefix}.weight"] = ((N_TAPS, widths[i], widths[i + 1]), True)
        table[f"{prefix}.bias"] = ((widths[i + 1],), False)
    for kind, width in (("ih", widths[N_LAYERS]), ("hh", hidden)):
        table[f"_model.decoder.rnn.weight_{kind}"] = ((width, 4 * hidden), False)
        table[f"_model.decoder.rnn.bias_{kind}"] = ((4 * hidden,), False)
    table["_model.decoder.decoder.2.weight"] = ((hidden,), True)
    table["_model.decoder.decoder.2.bias"] = ((), False)
    return table


def _significant(shape) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


cdef int read_tensor(Source source, dict expected, dict tensors) except -1:
    """Read one record into `tensors`, as an array in the usual order, slowest axis first."""
    cdef int n_dims = source.i32("the number of dimensions of a tensor")
    cdef int n_name = source.i32("the length of a tensor's name")
    cdef int type = source.i32("the type of a tensor")
    cdef long long count = 1
    if not 0 <= n_dims <= 4:
        raise ModelFormatError(f"{source.name}: a tensor has {n_dims} dimensions (0 to 4 are possible)")
    if not 1 <= n_name <= MAX_NAME_BYTES:
        raise ModelFormatError(f"{source.name}: a tensor's name has {n_name} bytes (1 to {MAX_NAME_BYTES} possible)")
    dims = tuple([source.i32("a tensor's dimensions") for _ in range(n_dims)])
    name = source.take(n_name, "a tensor's name").decode("utf-8", "backslashreplace")
    if name not in expected:
        raise ModelFormatError(f"{source.name} holds a tensor {name!r} that a Silero network has not")
    if name in tensors:
        raise ModelFormatError(f"{source.name} holds tensor {name} twice")
    shape, may_be_f16 = expected[name]
    if _significant(dims) != _significant(shape):
        raise ModelFormatError(f"{source.name}: {name} has shape {list(dims)}, the sizes say {list(shape)}")
    if type != _F32 and not (type == _F16 and may_be_f16):
        raise ModelFormatError(f"{source.name}: {name} has type number {type}, which is not possible for it")
    for n in shape:
        count *= n
    dtype, width = _WIDTH[type]
    array = np.frombuffer(source.take(count * width, name), dtype=dtype).reshape(shape[::-1])
    if not np.isfinite(array).all():
        raise ModelFormatError(f"{source.name}: {name} holds NaN or infinity")
    tensors[name] = array
    return 0


cdef dict read_tensors(Source source, list widths, int hidden):
    expected = expected_tensors(widths, hidden)
    cdef dict tensors = {}
    while source.pos < source.size:
        read_tensor(source, expected, tensors)
    missing = [name for name in expected if name not in tensors]
    if missing:
        raise ModelFormatError(
            f"{source.name} lacks {len(missing)} of {len(expected)} tensors, the first is {missing[0]}"
        )
    return tensors


def _padded(n: int) -> int:
    return (n + PAD - 1) // PAD * PAD


def _with_zeros(array, *shape):
    """Return the array, enlarged at the ends of its axes by zeros."""
    out = np.zeros(shape, dtype=np.float16 if array.dtype == np.dtype("<f2") else np.float32)
    out[tuple([slice(n) for n in array.shape])] = array
    return out


cdef ggml_tensor * declare(Meta meta, list plan, array) except NULL:
    """Make a tensor for a matrix or vector and note what shall be stored in it."""
    cdef ggml_tensor * tensor = ggml_new_tensor_2d(
        meta.ptr, GGML_TYPE_F16 if array.dtype == np.float16 else GGML_TYPE_F32, array.shape[array.ndim - 1],
        array.shape[0] if array.ndim == 2 else 1)
    plan.append((<size_t>tensor, np.ascontiguousarray(array)))
    return tensor


cdef int store(list plan) except -1:
    cdef ggml_tensor * tensor
    cdef const unsigned char[::1] data
    for address, array in plan:
        tensor = <ggml_tensor *><size_t>address
        data = array.reshape(-1).view(np.uint8)
        if <size_t>data.shape[0] != ggml_nbytes(tensor):
            raise ModelFormatError("a tensor of the voice activity model has an unexpected size")
        ggml_backend_tensor_set(tensor, &data[0], 0, data.shape[0])
    return 0


cdef int place_front(VadWeights self, list plan, dict tensors, list widths) except -1:
    """Short-time Fourier transform and convolutions."""
    cdef int i, k, n_in, n_out
    basis = tensors["_model.stft.forward_basis_buffer"].reshape(2, N_BINS, N_FFT)
    self.stft_re = declare(self.meta, plan, _with_zeros(basis[0], _padded(N_BINS), N_FFT))
    self.stft_im = declare(self.meta, plan, _with_zeros(basis[1], _padded(N_BINS), N_FFT))
    for i in range(N_LAYERS):
        n_in, n_out = _padded(widths[i]), _padded(widths[i + 1])
        weight = tensors[f"_model.encoder.{i}.reparam_conv.weight"]        # (n_out, n_in, 3)
        for k in range(N_TAPS):
            self.conv[i].tap[k] = declare(self.meta, plan, _with_zeros(weight[:, :, k], n_out, n_in))
        bias = tensors[f"_model.encoder.{i}.reparam_conv.bias"]
        self.conv[i].bias = declare(self.meta, plan, _with_zeros(bias, n_out))
    return 0


cdef int place_recurrent(VadWeights self, list plan, dict tensors, list widths, int hidden) except -1:
    """LSTM and final layer. Gates are in the order input, forget, cell, output."""
    self.n_hidden = hidden
    self.n_gates = (4 * hidden + LANES - 1) // LANES * LANES
    w_in = tensors["_model.decoder.rnn.weight_ih"]
    bias = tensors["_model.decoder.rnn.bias_ih"] + tensors["_model.decoder.rnn.bias_hh"]
    if not np.isfinite(bias).all():
        raise ModelFormatError("the biases of the LSTM are too large")
    self.gate_in = declare(self.meta, plan, _with_zeros(w_in, self.n_gates, _padded(widths[N_LAYERS])))
    self.gate_bias = declare(self.meta, plan, _with_zeros(bias, self.n_gates))
    w_state = _with_zeros(tensors["_model.decoder.rnn.weight_hh"], self.n_gates, hidden)
    blocks = w_state.reshape(self.n_gates // LANES, LANES, hidden).transpose(0, 2, 1)
    self.recurrent = np.ascontiguousarray(blocks)
    self.final_weight = tensors["_model.decoder.decoder.2.weight"].astype(np.float32)
    self.final_bias = tensors["_model.decoder.decoder.2.bias"].reshape(-1)[0]
    return 0


cdef VadWeights load_weights(Source source):
    """Read a model file into memory of the CPU device."""
    cdef VadWeights self = VadWeights.__new__(VadWeights)
    cdef Device cpu = cpu_device()
    cdef list plan = []
    try:
        read_type(source)
        self.version, widths, hidden = read_sizes(source)
        tensors = read_tensors(source, widths, hidden)
    except ModelFormatError as error:
        raise located(source, error) from None
    self.meta = Meta.create(4 + N_LAYERS * (N_TAPS + 1), 0)
    place_front(self, plan, tensors, widths)
    place_recurrent(self, plan, tensors, widths, hidden)
    self.buffer = Buffer.for_tensors(self.meta, ggml_backend_dev_buffer_type(cpu.dev),
                                     GGML_BACKEND_BUFFER_USAGE_WEIGHTS, f"the weights of {source.name}")
    store(plan)
    return self
