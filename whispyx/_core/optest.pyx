"""Runs a few operations on one device, without a scheduler: what comes out is that device's work and no other's.

A job is data: the tensors that go in, and steps that each make a tensor of earlier ones. Steps have the names and the
order of arguments of ggml. Shapes are written slowest dimension first, strides and offsets count elements.
"""

from libc.stdint cimport int64_t

import numpy as np

cimport cython

from whispyx._core.devices cimport Device, Watch
from whispyx._core.handles cimport Backend, Buffer, Meta, ThreadPool
from whispyx._core.log cimport last_line
from whispyx._ggml.ggml cimport (
    GGML_PREC_F32,
    GGML_STATUS_ALLOC_FAILED,
    GGML_STATUS_SUCCESS,
    GGML_TYPE_COUNT,
    ggml_add,
    ggml_blck_size,
    ggml_build_forward_expand,
    ggml_cast,
    ggml_cgraph,
    ggml_cont,
    ggml_context,
    ggml_conv_1d_ph,
    ggml_cpy,
    ggml_element_size,
    ggml_flash_attn_ext,
    ggml_flash_attn_ext_set_prec,
    ggml_gelu,
    ggml_get_rows,
    ggml_mul,
    ggml_mul_mat,
    ggml_nbytes,
    ggml_new_graph_custom,
    ggml_new_tensor,
    ggml_norm,
    ggml_permute,
    ggml_row_size,
    ggml_scale,
    ggml_set_input,
    ggml_set_name,
    ggml_set_output,
    ggml_set_rows,
    ggml_soft_max_ext,
    ggml_status,
    ggml_tensor,
    ggml_transpose,
    ggml_type,
    ggml_type_name,
)
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_BUFFER_USAGE_COMPUTE,
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
    ggml_backend_buffer_clear,
    ggml_backend_buffer_type_t,
    ggml_backend_dev_buffer_type,
    ggml_backend_dev_supports_op,
    ggml_backend_t,
    ggml_backend_tensor_get,
    ggml_backend_tensor_set,
)

from whispyx.errors import ComputeError, ComputeMemoryError, DeviceError, ParamsError, StateError

__all__ = ["OpTester", "decode", "encode", "row_bytes"]

cdef extern from "ggml.h" nogil:
    ctypedef void (*ggml_to_float_t)(const void * x, float * y, int64_t k) noexcept nogil

    struct ggml_type_traits:
        ggml_to_float_t to_float

    const ggml_type_traits * ggml_get_type_traits(ggml_type type)
    size_t ggml_quantize_chunk(ggml_type type, const float * src, void * dst, int64_t start, int64_t nrows,
                               int64_t n_per_row, const float * imatrix)
    bint ggml_quantize_requires_imatrix(ggml_type type)
    ggml_tensor * ggml_sqrt(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_relu(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_reshape_4d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1, int64_t ne2,
                                  int64_t ne3)
    ggml_tensor * ggml_view_4d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
                               size_t nb1, size_t nb2, size_t nb3, size_t offset)
    ggml_tensor * ggml_im2col(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, int s0, int s1, int p0, int p1,
                              int d0, int d1, bint is_2D, ggml_type dst_type)
    const char * ggml_op_desc(const ggml_tensor * t)
    int ggml_graph_n_nodes(ggml_cgraph * cgraph)
    ggml_tensor * ggml_graph_node(ggml_cgraph * cgraph, int i)

    enum ggml_op:
        GGML_OP_NONE
        GGML_OP_RESHAPE
        GGML_OP_VIEW
        GGML_OP_PERMUTE
        GGML_OP_TRANSPOSE

    struct op_of "ggml_tensor":
        ggml_op op

cdef extern from "ggml-backend.h" nogil:
    ggml_status ggml_backend_graph_compute(ggml_backend_t backend, ggml_cgraph * cgraph)

cdef enum:
    MAX_STEPS = 64
    NODES_PER_STEP = 8      # a convolution is several nodes

cdef float LN_EPS = 1e-5    # as in the graphs


cdef dict type_numbers():
    cdef int i
    found = {}
    for i in range(<int>GGML_TYPE_COUNT):
        if ggml_blck_size(<ggml_type>i) > 0 and ggml_type_name(<ggml_type>i) != NULL:
            found[(<bytes>ggml_type_name(<ggml_type>i)).decode()] = i
    return found


cdef dict TYPES = type_numbers()


cdef ggml_type type_of(object name) except? GGML_TYPE_COUNT:
    number = TYPES.get(name)
    if number is None:
        raise ParamsError(f"there is no type {name!r}; there are {', '.join(TYPES)}")
    return <ggml_type><int>number


def row_bytes(type: str, n: int) -> int:
    """Return the bytes that `n` values of a type take; 0 where they do not fill whole blocks."""
    cdef ggml_type number = type_of(type)
    return 0 if n % ggml_blck_size(number) else ggml_row_size(number, n)


def encode(values, type: str):
    """Return float32 values (..., n) as the bytes of a type, a one-dimensional uint8 array.

    Raises
    ------
    ParamsError
        Rows do not fill whole blocks, or ggml does not make this type without more knowledge of the data.
    """
    cdef ggml_type number = type_of(type)
    cdef const float[::1] flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    cdef unsigned char[::1] out
    cdef int64_t n = values.shape[values.ndim - 1], n_rows = flat.shape[0] // n
    if row_bytes(type, n) == 0:
        raise ParamsError(f"rows of {n} values are not whole blocks of {type}")
    if type in ("i32", "i64") or ggml_quantize_requires_imatrix(number):
        raise ParamsError(f"values are not made {type} here")
    out = np.empty(row_bytes(type, n) * n_rows, dtype=np.uint8)
    with nogil:
        ggml_quantize_chunk(number, &flat[0], &out[0], 0, n_rows, n, NULL)
    return np.asarray(out)


def decode(data, type: str):
    """Return the float32 values, one-dimensional, of bytes of a type; exactly what they stand for."""
    cdef ggml_type number = type_of(type)
    cdef const unsigned char[::1] raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    cdef float[::1] out
    cdef const ggml_type_traits * traits = ggml_get_type_traits(number)
    cdef int64_t n = raw.shape[0] // ggml_row_size(number, ggml_blck_size(number)) * ggml_blck_size(number)
    if type == "f32":
        return np.asarray(raw).view(np.float32).copy()
    if traits.to_float == NULL or n == 0:
        raise ParamsError(f"{raw.shape[0]} bytes of {type} stand for no numbers")
    out = np.empty(n, dtype=np.float32)
    with nogil:
        traits.to_float(&raw[0], &out[0], n)
    return np.asarray(out)


cdef int dims(object shape, int64_t * ne) except -1:
    """Write a shape, slowest dimension first, as ggml's four numbers."""
    cdef int i, n = len(shape)
    if not 1 <= n <= 4 or any([m < 1 for m in shape]):
        raise ParamsError(f"{shape} is no shape of one to four dimensions")
    for i in range(4):
        ne[i] = shape[n - 1 - i] if i < n else 1
    return 0


cdef class Job:
    """The tensors of one graph by name."""

    cdef Meta meta
    cdef Meta weights
    cdef dict tensors

    def __cinit__(self):
        self.tensors = {}

    cdef ggml_tensor * get(self, object name) except NULL:
        address = self.tensors.get(name)
        if address is None:
            raise ParamsError(f"no step has made a tensor {name!r}")
        return <ggml_tensor *><size_t>address

    cdef ggml_tensor * mask(self, object name) except? NULL:
        return NULL if name is None else self.get(name)

    cdef ggml_tensor * view(self, ggml_tensor * x, object shape, object strides, size_t offset) except NULL:
        cdef size_t size = ggml_element_size(x)
        cdef int64_t ne[4]
        cdef int64_t nb[4]
        dims(shape, ne)
        dims(strides, nb)
        # Missing strides are those of whole blocks of the dimensions below.
        for i in range(len(strides), 4):
            nb[i] = nb[i - 1] * ne[i - 1]
        return ggml_view_4d(self.meta.ptr, x, ne[0], ne[1], ne[2], ne[3], size * nb[1], size * nb[2], size * nb[3],
                            size * offset)

    cdef ggml_tensor * make(self, str op, tuple a) except NULL:
        cdef ggml_context * g = self.meta.ptr
        cdef ggml_tensor * x = self.get(a[0])
        cdef ggml_tensor * y
        cdef int64_t ne[4]
        if op == "norm":
            y = ggml_norm(g, x, LN_EPS)
        elif op == "add":
            y = ggml_add(g, x, self.get(a[1]))
        elif op == "mul":
            y = ggml_mul(g, x, self.get(a[1]))
        elif op == "scale":
            y = ggml_scale(g, x, a[1])
        elif op == "gelu":
            y = ggml_gelu(g, x)
        elif op == "relu":
            y = ggml_relu(g, x)
        elif op == "sqrt":
            y = ggml_sqrt(g, x)
        elif op == "mul_mat":
            y = ggml_mul_mat(g, x, self.get(a[1]))
        elif op == "soft_max":
            y = ggml_soft_max_ext(g, x, self.mask(a[1]), a[2], 0.0)
        elif op == "flash_attn":
            y = ggml_flash_attn_ext(g, x, self.get(a[1]), self.get(a[2]), self.mask(a[3]), a[4], 0.0, 0.0)
            ggml_flash_attn_ext_set_prec(y, GGML_PREC_F32)
        elif op == "get_rows":
            y = ggml_get_rows(g, x, self.get(a[1]))
        elif op == "set_rows":
            y = ggml_set_rows(g, x, self.get(a[1]), self.get(a[2]))
        elif op == "cpy":
            y = ggml_cpy(g, x, self.get(a[1]))
        elif op == "cast":
            y = ggml_cast(g, x, type_of(a[1]))
        elif op == "cont":
            y = ggml_cont(g, x)
        elif op == "im2col":
            y = ggml_im2col(g, x, self.get(a[1]), a[2], 0, a[3], 0, 1, 0, False, type_of(a[4]))
        elif op == "conv_1d":
            y = ggml_conv_1d_ph(g, x, self.get(a[1]), a[2], 1)
        elif op == "permute":
            y = ggml_permute(g, x, a[1], a[2], a[3], a[4])
        elif op == "transpose":
            y = ggml_transpose(g, x)
        elif op == "reshape":
            dims(a[1], ne)
            y = ggml_reshape_4d(g, x, ne[0], ne[1], ne[2], ne[3])
        elif op == "view":
            y = self.view(x, a[1], a[2], a[3])
        else:
            raise ParamsError(f"there is no operation {op!r}")
        return y


cdef bint computes(ggml_tensor * node) noexcept:
    """Whether a node does more than look at another tensor's data in another way."""
    return (<op_of *>node).op not in (GGML_OP_NONE, GGML_OP_RESHAPE, GGML_OP_VIEW, GGML_OP_PERMUTE, GGML_OP_TRANSPOSE)


@cython.final
cdef class OpTester:
    """One device, started, that computes jobs until it is closed.

    Parameters
    ----------
    device : Device
    n_threads : int
        For devices that compute with threads of the processor.

    Raises
    ------
    ParamsError
        `n_threads` is not 1 to 512.
    DeviceError
        The device does not start.
    """

    cdef Backend backend
    cdef ThreadPool pool
    cdef ggml_backend_buffer_type_t memory

    def __init__(self, Device device not None, int n_threads):
        if not 1 <= n_threads <= 512:
            raise ParamsError(f"n_threads is {n_threads}; 1 to 512 are possible")
        device.check()
        with nogil:
            self.memory = ggml_backend_dev_buffer_type(device.dev)
        if self.memory == NULL:
            raise DeviceError(f"device {device.name} names no kind of memory that it works on")
        self.backend = Backend.create(device)
        if device.proc(b"ggml_threadpool_new") != NULL:
            self.pool = ThreadPool.create(self.backend, n_threads)
        if self.backend.set_n_threads != NULL:
            self.backend.set_n_threads(self.backend.ptr, n_threads)

    def close(self) -> None:
        """Stop the device. Closing twice is fine."""
        if self.pool is not None:
            self.pool.close()
        if self.backend is not None:
            self.backend.close()

    def run(self, inputs, steps):
        """Compute steps and return what the last one makes.

        Parameters
        ----------
        inputs : sequence of (name, type, shape, data, is_weight)
            `data` holds the tensor's bytes, an array of any type. Weights lie in a buffer that is marked as such.
        steps : sequence of (name, operation, …)
            Arguments are names of tensors, or numbers and shapes. They are those of our own tables: ggml ends the
            process when shapes do not fit together.

        Returns
        -------
        numpy.ndarray or str
            The values, float32, one-dimensional; or the first operation that the device says it does not support.

        Raises
        ------
        ComputeError, ComputeMemoryError, DeviceError
            The device fails, has no memory, or has gone.
        ParamsError
            A name, a type or a shape is not possible.
        """
        if self.backend is None or self.backend.ptr == NULL:
            raise StateError("this OpTester is closed")
        cdef Job job = Job()
        job.meta = Meta.create(len(inputs) + 1, MAX_STEPS * NODES_PER_STEP)
        job.weights = Meta.create(len(inputs) + 1, 0)
        cdef list buffers = []
        try:
            return self._run(job, inputs, steps, buffers)
        finally:
            for buffer in buffers:
                (<Buffer>buffer).close()
            job.meta.close()
            job.weights.close()

    cdef object _run(self, Job job, object inputs, object steps, list buffers):
        cdef ggml_cgraph * graph = ggml_new_graph_custom(job.meta.ptr, MAX_STEPS * NODES_PER_STEP, False)
        cdef ggml_tensor * node = NULL
        cdef ggml_status status
        cdef int i
        cdef bint has_weights = False
        cdef Watch watch = Watch.of([self.backend.device])
        self._declare(job, inputs)
        if not 1 <= len(steps) <= MAX_STEPS:
            raise ParamsError(f"{len(steps)} steps; 1 to {MAX_STEPS} are possible")
        for name, op, *arguments in steps:
            node = job.make(op, tuple(arguments))
            ggml_set_name(node, name.encode())
            job.tensors[name] = <size_t>node
            ggml_build_forward_expand(graph, node)
        ggml_set_output(node)
        for i in range(ggml_graph_n_nodes(graph)):
            if computes(ggml_graph_node(graph, i)) and not self._supports(ggml_graph_node(graph, i)):
                return (<bytes>ggml_op_desc(ggml_graph_node(graph, i))).decode()
        for _, _, _, _, is_weight in inputs:
            has_weights = has_weights or is_weight
        if has_weights:
            buffers.append(Buffer.for_tensors(job.weights, self.memory, GGML_BACKEND_BUFFER_USAGE_WEIGHTS, "weights"))
        buffers.append(Buffer.for_tensors(job.meta, self.memory, GGML_BACKEND_BUFFER_USAGE_COMPUTE, "a test's tensors"))
        # What a device forgets to write shall not look right by chance: 0x7f7f… is far from every sound value.
        ggml_backend_buffer_clear((<Buffer>buffers[len(buffers) - 1]).ptr, 0x7f)
        self._fill(job, inputs)
        watch.check()
        with nogil:
            status = ggml_backend_graph_compute(self.backend.ptr, graph)
        if status == GGML_STATUS_ALLOC_FAILED:
            raise ComputeMemoryError(f"{self.backend.device.name} ran out of memory while computing", log=last_line())
        if status != GGML_STATUS_SUCCESS:
            raise ComputeError(f"{self.backend.device.name} failed while computing (ggml status {<int>status})",
                               log=last_line())
        watch.check()
        values = self._read(node)
        watch.check()
        return values

    cdef bint _supports(self, ggml_tensor * node):
        cdef bint yes
        with nogil:
            yes = ggml_backend_dev_supports_op(self.backend.device.dev, node)
        return yes

    cdef int _declare(self, Job job, object inputs) except -1:
        cdef ggml_tensor * tensor
        cdef int64_t ne[4]
        for name, type, shape, data, is_weight in inputs:
            dims(shape, ne)
            if ne[0] % ggml_blck_size(type_of(type)):
                raise ParamsError(f"rows of {ne[0]} values are not whole blocks of {type}")
            tensor = ggml_new_tensor((job.weights if is_weight else job.meta).ptr, type_of(type), 4, ne)
            if ggml_nbytes(tensor) != <size_t>data.nbytes:
                raise ParamsError(f"{name} has {data.nbytes} bytes, {type} {shape} needs {ggml_nbytes(tensor)}")
            ggml_set_name(tensor, name.encode())
            ggml_set_input(tensor)
            job.tensors[name] = <size_t>tensor
        return 0

    cdef int _fill(self, Job job, object inputs) except -1:
        cdef const unsigned char[::1] raw
        cdef ggml_tensor * tensor
        for name, _, _, data, _ in inputs:
            raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            tensor = job.get(name)
            with nogil:
                ggml_backend_tensor_set(tensor, &raw[0], 0, raw.shape[0])
        return 0

    cdef object _read(self, ggml_tensor * tensor):
        cdef unsigned char[::1] raw = np.empty(ggml_nbytes(tensor), dtype=np.uint8)
        with nogil:
            ggml_backend_tensor_get(tensor, &raw[0], 0, raw.shape[0])
        return decode(raw, (<bytes>ggml_type_name(tensor.type)).decode())
