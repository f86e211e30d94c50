from libc.stdint cimport uint64_t

from whispyx._ggml.ggml_backend cimport ggml_backend_dev_t, ggml_backend_reg_t

# Functions that a plugin may offer by name (backends/README.md).
ctypedef const char * (*device_error_t)(ggml_backend_dev_t dev) noexcept nogil
ctypedef uint64_t (*device_losses_t)(ggml_backend_dev_t dev) noexcept nogil


cdef class Device:
    cdef ggml_backend_dev_t dev
    cdef ggml_backend_reg_t reg
    cdef readonly str name            # as ggml names it: "CPU", "Vulkan0"
    cdef readonly str description
    cdef readonly str kind            # "CPU", "GPU", "IGPU", "ACCEL" or "META"
    cdef readonly str backend         # name of the plugin: "cpu", "vulkan"
    cdef readonly int index           # position among the devices of its plugin
    cdef readonly str plugin_path
    cdef device_error_t error_fn      # NULL: it does not say
    cdef device_losses_t losses_fn

    cdef int check(self) except -1
    cdef void * proc(self, const char * name) except? NULL


cdef class Watch:
    cdef list devices
    cdef list losses                  # of each, when the watch began
    @staticmethod
    cdef Watch of(list devices)
    cdef int check(self) except -1
    cdef bint broken(self)


cdef str device_error(ggml_backend_dev_t dev)
