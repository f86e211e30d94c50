from whispyx._ggml.ggml_backend cimport ggml_backend_dev_t, ggml_backend_reg_t


cdef class Device:
    cdef ggml_backend_dev_t dev
    cdef ggml_backend_reg_t reg
    cdef readonly str name            # as ggml names it: "CPU", "Vulkan0"
    cdef readonly str description
    cdef readonly str kind            # "CPU", "GPU", "IGPU", "ACCEL" or "META"
    cdef readonly str backend         # name of the plugin: "cpu", "vulkan"
    cdef readonly int index           # position among the devices of its plugin
    cdef readonly str plugin_path

    cdef int check(self) except -1
    cdef void * proc(self, const char * name) except? NULL
