"""Computes one small graph on the first device of a plugin, with ctypes on the base library of the process.

Runs in child processes. ctypes is independent of the code under test: it finds the loaded libraries by their paths.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

F32 = 0
STATUS_SUCCESS = 0


class InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def _function(lib: ctypes.CDLL, name: str, result: type | None, *arguments: type) -> Any:
    function = getattr(lib, name)
    function.restype = result
    function.argtypes = arguments
    return function


class Ggml:
    """The functions this file needs."""

    def __init__(self, path: str) -> None:
        lib = ctypes.CDLL(path)
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
        self.init = _function(lib, "ggml_init", pointer, InitParams)
        self.free = _function(lib, "ggml_free", None, pointer)
        self.new_tensor = _function(lib, "ggml_new_tensor_2d", pointer, pointer, ctypes.c_int, number, number)
        self.add = _function(lib, "ggml_add", pointer, pointer, pointer, pointer)
        self.mul_mat = _function(lib, "ggml_mul_mat", pointer, pointer, pointer, pointer)
        self.new_graph = _function(lib, "ggml_new_graph", pointer, pointer)
        self.expand = _function(lib, "ggml_build_forward_expand", None, pointer, pointer)
        self.reg_device = _function(lib, "ggml_backend_reg_dev_get", pointer, pointer, size)
        self.supports = _function(lib, "ggml_backend_dev_supports_op", ctypes.c_bool, pointer, pointer)
        self.device_init = _function(lib, "ggml_backend_dev_init", pointer, pointer, ctypes.c_char_p)
        self.alloc = _function(lib, "ggml_backend_alloc_ctx_tensors", pointer, pointer, pointer)
        self.set = _function(lib, "ggml_backend_tensor_set", None, pointer, pointer, size, size)
        self.get = _function(lib, "ggml_backend_tensor_get", None, pointer, pointer, size, size)
        self.compute = _function(lib, "ggml_backend_graph_compute", ctypes.c_int, pointer, pointer)
        self.buffer_free = _function(lib, "ggml_backend_buffer_free", None, pointer)
        self.backend_name = _function(lib, "ggml_backend_name", ctypes.c_char_p, pointer)
        self.sched_new = _function(
            lib, "ggml_backend_sched_new", pointer, pointer, pointer, ctypes.c_int, size, ctypes.c_bool, ctypes.c_bool
        )
        self.sched_alloc = _function(lib, "ggml_backend_sched_alloc_graph", ctypes.c_bool, pointer, pointer)
        self.sched_compute = _function(lib, "ggml_backend_sched_graph_compute", ctypes.c_int, pointer, pointer)
        self.sched_backend = _function(lib, "ggml_backend_sched_get_tensor_backend", pointer, pointer, pointer)
        self.sched_free = _function(lib, "ggml_backend_sched_free", None, pointer)
        self.set_input = _function(lib, "ggml_set_input", None, pointer)
        self.set_output = _function(lib, "ggml_set_output", None, pointer)
        self.backend_free = _function(lib, "ggml_backend_free", None, pointer)


def _device(ggml: Ggml, plugin: str) -> int:
    library = ctypes.CDLL(plugin)
    library.ggml_backend_init.restype = ctypes.c_void_p
    return ggml.reg_device(library.ggml_backend_init(), 0)


def compute(
    base: str, plugin: str, operation: str, a: Sequence[float], b: Sequence[float], shape: tuple[int, int]
) -> list[float]:
    """Return `operation` ("add" or "mul_mat") of two float32 tensors of ggml shape `shape`, computed by `plugin`."""
    ggml = Ggml(base)
    device = _device(ggml, plugin)
    context = ggml.init(InitParams(1 << 20, None, True))
    left = ggml.new_tensor(context, F32, *shape)
    right = ggml.new_tensor(context, F32, *shape)
    out = getattr(ggml, operation)(context, left, right)
    if not ggml.supports(device, out):
        raise RuntimeError(f"the device does not support {operation}")
    graph = ggml.new_graph(context)
    ggml.expand(graph, out)
    backend = ggml.device_init(device, None)
    if not backend:
        raise RuntimeError("the device could not be initialised")
    buffer = ggml.alloc(context, backend)
    floats = ctypes.c_float * math.prod(shape)
    for tensor, values in ((left, a), (right, b)):
        ggml.set(tensor, floats(*values), 0, ctypes.sizeof(floats))
    status = ggml.compute(backend, graph)
    if status != STATUS_SUCCESS:
        raise RuntimeError(f"computing returned {status}")
    count = math.prod(shape) if operation == "add" else shape[1] ** 2
    result = (ctypes.c_float * count)()
    ggml.get(out, result, 0, ctypes.sizeof(result))
    ggml.buffer_free(buffer)
    ggml.backend_free(backend)
    ggml.free(context)
    return list(result)


def compute_split(
    base: str, plugins: Sequence[str], a: Sequence[float], b: Sequence[float], c: Sequence[float], n: int
) -> tuple[list[float], str, str]:
    """Compute mul_mat(a, b) + c for n x n float32 matrices with ggml's scheduler on the devices of `plugins`.

    Returns the result and the names of the backends that the scheduler gave the product and the sum to.
    """
    ggml = Ggml(base)
    backends = (ctypes.c_void_p * len(plugins))(*(ggml.device_init(_device(ggml, p), None) for p in plugins))
    context = ggml.init(InitParams(1 << 20, None, True))
    inputs = [ggml.new_tensor(context, F32, n, n) for _ in range(3)]
    for tensor in inputs:
        ggml.set_input(tensor)
    product = ggml.mul_mat(context, inputs[0], inputs[1])
    total = ggml.add(context, product, inputs[2])
    ggml.set_output(total)
    graph = ggml.new_graph(context)
    ggml.expand(graph, total)
    sched = ggml.sched_new(backends, None, len(plugins), 64, False, False)
    if not ggml.sched_alloc(sched, graph):
        raise RuntimeError("the scheduler could not allocate the graph")
    floats = ctypes.c_float * (n * n)
    for tensor, values in zip(inputs, (a, b, c), strict=True):
        ggml.set(tensor, floats(*values), 0, ctypes.sizeof(floats))
    status = ggml.sched_compute(sched, graph)
    if status != STATUS_SUCCESS:
        raise RuntimeError(f"computing returned {status}")
    result = floats()
    ggml.get(total, result, 0, ctypes.sizeof(result))
    where = [ggml.backend_name(ggml.sched_backend(sched, node)).decode() for node in (product, total)]
    ggml.sched_free(sched)
    for backend in backends:
        ggml.backend_free(backend)
    ggml.free(context)
    return list(result), where[0], where[1]
