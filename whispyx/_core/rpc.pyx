"""Devices behind a network connection: the functions that the plugin "rpc" offers beyond ggml's interface."""

from libc.stdint cimport uintptr_t

from whispyx._core.devices cimport Device
from whispyx._core.handles cimport Backend, ThreadPool
from whispyx._ggml.ggml_backend cimport ggml_backend_reg_get_proc_address, ggml_backend_reg_t, ggml_backend_t

from whispyx.errors import BackendLoadError, DeviceError

ctypedef ggml_backend_reg_t (*add_server_t)(const char * endpoint) noexcept nogil
ctypedef void (*set_timeouts_t)(int connect_ms, int answer_ms) noexcept nogil
ctypedef const char * (*last_error_t)() noexcept nogil
ctypedef void (*serve_t)(int fd, size_t n_backends, ggml_backend_t * backends) noexcept nogil


cdef void * offered(uintptr_t registration, bytes name) except NULL:
    """Return the address of a function that the plugin offers by name."""
    cdef void * address = ggml_backend_reg_get_proc_address(<ggml_backend_reg_t>registration, name)
    if address == NULL:
        raise BackendLoadError(f"it offers no {name.decode()}: it is not the one that whispyx builds")
    return address


def set_timeouts(registration: int, connect_ms: int, answer_ms: int) -> None:
    """Say how long a server may take to be reached and to answer. Connections that exist keep what they have."""
    cdef set_timeouts_t function = <set_timeouts_t>offered(registration, b"whispyx_rpc_set_timeouts")
    cdef int connect = connect_ms, answer = answer_ms
    with nogil:
        function(connect, answer)


def add_server(registration: int, endpoint: str) -> int:
    """Connect to the server at "host:port" and return the registration of its devices.

    Raises
    ------
    DeviceError
        It cannot be reached, does not answer in time, or answers with something else than such a server would.
    """
    cdef add_server_t function = <add_server_t>offered(registration, b"ggml_backend_rpc_add_server")
    cdef last_error_t reason = <last_error_t>offered(registration, b"whispyx_rpc_last_error")
    cdef ggml_backend_reg_t found
    cdef bytes name = endpoint.encode()
    cdef const char * address = name
    with nogil:
        found = function(address)
    if found == NULL:
        raise DeviceError(f"the RPC server at {endpoint} cannot be used: {reason().decode('utf-8', 'replace')}")
    return <uintptr_t>found


def serve(registration: int, fd: int, Device device not None, n_threads: int) -> None:
    """Let the client at the other end of an accepted socket use a device, until it leaves.

    The socket is closed in every case. A client that sends nonsense is dropped; one that names operations with sources
    that do not fit them can end the process, so each client belongs in a process of its own.
    """
    cdef serve_t function = <serve_t>offered(registration, b"whispyx_rpc_serve")
    cdef Backend backend = Backend.create(device)
    cdef ThreadPool pool = None
    cdef int number = fd, threads = n_threads
    if device.kind == "CPU":
        pool = ThreadPool.create(backend, threads)
    if backend.set_n_threads != NULL:
        backend.set_n_threads(backend.ptr, threads)
    with nogil:
        function(number, 1, &backend.ptr)
    if pool is not None:
        pool.close()
    backend.close()
