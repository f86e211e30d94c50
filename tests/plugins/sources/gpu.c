/* A GPU made of the CPU: devices of kind GPU with a memory of their own, which only they can read, and whose work is
 * done by the CPU plugin. It shows on any machine what becomes of a model on a GPU.
 *
 * Read when the plugin starts:
 *   FAKE_GPU_CPU        file of the CPU plugin that computes
 *   FAKE_GPU_DEVICES    how many devices (1)
 *   FAKE_GPU_MEMORY     bytes that each device has (no limit)
 *   FAKE_GPU_REFUSES    comma list of ggml operations it does not compute, and of weight types it cannot multiply by
 *   FAKE_GPU_NO_START   the devices cannot be started
 *   FAKE_GPU_FAIL_AFTER after so many graphs every further one fails
 *   FAKE_GPU_TRACE      file to which the name of each operation that was computed is appended
 */

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 4

struct gpu {
    char name[16];
    size_t limit;
    size_t used;
    struct ggml_backend_buffer_type buft;
    struct ggml_backend_device dev;
};

static struct gpu gpus[MAX_DEVICES];
static size_t n_gpus;
static ggml_backend_dev_t cpu;
static const char * refuses;
static long fail_after = -1;
static FILE * trace;

static bool refused(const char * name) {
    const char * found = refuses == NULL ? NULL : strstr(refuses, name);
    if (found == NULL) return false;
    const char end = found[strlen(name)];
    return (found == refuses || found[-1] == ',') && (end == '\0' || end == ',');
}

/* --- memory ------------------------------------------------------------------------------------------------- */

static struct gpu * gpu_of(ggml_backend_buffer_t buffer) { return buffer->buft->context; }

static void buffer_free(ggml_backend_buffer_t buffer) {
    gpu_of(buffer)->used -= buffer->size;
    free(buffer->context);
}

static void * buffer_base(ggml_backend_buffer_t buffer) { return buffer->context; }

static void buffer_memset(ggml_backend_buffer_t b, struct ggml_tensor * t, uint8_t value, size_t at, size_t n) {
    (void) b;
    memset((char *) t->data + at, value, n);
}

static void buffer_set(ggml_backend_buffer_t b, struct ggml_tensor * t, const void * data, size_t at, size_t n) {
    (void) b;
    memcpy((char *) t->data + at, data, n);
}

static void buffer_get(ggml_backend_buffer_t b, const struct ggml_tensor * t, void * data, size_t at, size_t n) {
    (void) b;
    memcpy(data, (const char *) t->data + at, n);
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) { memset(buffer->context, value, buffer->size); }

static const char * buft_name(ggml_backend_buffer_type_t buft) { return ((struct gpu *) buft->context)->name; }

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    static const struct ggml_backend_buffer_i iface = {
        .free_buffer = buffer_free, .get_base = buffer_base, .memset_tensor = buffer_memset,
        .set_tensor = buffer_set, .get_tensor = buffer_get, .clear = buffer_clear,
    };
    struct gpu * gpu = buft->context;
    void * memory = size > gpu->limit - gpu->used ? NULL : aligned_alloc(64, (size / 64 + 1) * 64);
    if (memory == NULL) {
        GGML_LOG_ERROR("%s: no room for %zu bytes\n", gpu->name, size);
        return NULL;
    }
    gpu->used += size;
    return ggml_backend_buffer_init(buft, iface, memory, size);
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) { (void) buft; return 64; }

/* --- work --------------------------------------------------------------------------------------------------- */

static const char * backend_name(ggml_backend_t backend) { return ((struct gpu *) backend->device->context)->name; }

static void backend_free(ggml_backend_t backend) {
    ggml_backend_free(backend->context);
    free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    if (fail_after == 0) return GGML_STATUS_FAILED;
    if (fail_after > 0) fail_after--;
    for (int i = 0; trace != NULL && i < ggml_graph_n_nodes(graph); i++) {
        fprintf(trace, "%s %s\n", backend_name(backend), ggml_op_name(ggml_graph_node(graph, i)->op));
        fflush(trace);
    }
    return ggml_backend_graph_compute(backend->context, graph);
}

/* --- devices ------------------------------------------------------------------------------------------------ */

static const char * device_name(ggml_backend_dev_t dev) { return ((struct gpu *) dev->context)->name; }
static const char * device_description(ggml_backend_dev_t dev) { (void) dev; return "a GPU made of the CPU"; }
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void device_memory(ggml_backend_dev_t dev, size_t * free_bytes, size_t * total) {
    const struct gpu * gpu = dev->context;
    *total = gpu->limit == SIZE_MAX ? 0 : gpu->limit;
    *free_bytes = gpu->limit == SIZE_MAX ? 0 : gpu->limit - gpu->used;
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props * props) {
    memset(props, 0, sizeof(*props));
    props->name = device_name(dev);
    props->description = device_description(dev);
    props->type = device_type(dev);
    device_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t device_start(ggml_backend_dev_t dev, const char * params) {
    static ggml_guid guid = "whispyx-fakegpu";
    (void) params;
    if (getenv("FAKE_GPU_NO_START") != NULL) {
        GGML_LOG_ERROR("%s: the driver does not answer\n", device_name(dev));
        return NULL;
    }
    ggml_backend_t backend = calloc(1, sizeof(*backend));
    backend->guid = &guid;
    backend->device = dev;
    backend->context = ggml_backend_dev_init(cpu, NULL);
    backend->iface.get_name = backend_name;
    backend->iface.free = backend_free;
    backend->iface.graph_compute = backend_compute;
    return backend;
}

static ggml_backend_buffer_type_t device_buft(ggml_backend_dev_t dev) { return &((struct gpu *) dev->context)->buft; }

static bool device_op(ggml_backend_dev_t dev, const struct ggml_tensor * op) {
    (void) dev;
    if (refused(ggml_op_name(op->op))) return false;
    if (op->op == GGML_OP_MUL_MAT && refused(ggml_type_name(op->src[0]->type))) return false;
    return ggml_backend_dev_supports_op(cpu, op);
}

static bool device_holds(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) { return buft == device_buft(dev); }

static const char * reg_name(ggml_backend_reg_t reg) { (void) reg; return "FakeGPU"; }
static size_t reg_count(ggml_backend_reg_t reg) { (void) reg; return n_gpus; }
static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t i) { (void) reg; return &gpus[i].dev; }

static void start(struct gpu * gpu, size_t i, ggml_backend_reg_t reg) {
    const char * memory = getenv("FAKE_GPU_MEMORY");
    snprintf(gpu->name, sizeof(gpu->name), "FakeGPU%zu", i);
    gpu->limit = memory == NULL ? SIZE_MAX : strtoull(memory, NULL, 10);
    gpu->buft = (struct ggml_backend_buffer_type) {
        .iface = { .get_name = buft_name, .alloc_buffer = buft_alloc, .get_alignment = buft_alignment },
        .device = &gpu->dev, .context = gpu,
    };
    gpu->dev = (struct ggml_backend_device) {
        .iface = {
            .get_name = device_name, .get_description = device_description, .get_memory = device_memory,
            .get_type = device_type, .get_props = device_props, .init_backend = device_start,
            .get_buffer_type = device_buft, .supports_op = device_op, .supports_buft = device_holds,
        },
        .reg = reg, .context = gpu,
    };
}

static ggml_backend_reg_t fake_reg(void) {
    static struct ggml_backend_reg reg = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = { .get_name = reg_name, .get_device_count = reg_count, .get_device = reg_device },
    };
    if (n_gpus > 0) return &reg;
    const char * file = getenv("FAKE_GPU_CPU");
    void * library = file == NULL ? NULL : dlopen(file, RTLD_NOW | RTLD_LOCAL);
    ggml_backend_init_t init = library == NULL ? NULL : (ggml_backend_init_t) dlsym(library, "ggml_backend_init");
    if (init == NULL) return NULL;
    cpu = ggml_backend_reg_dev_get(init(), 0);
    refuses = getenv("FAKE_GPU_REFUSES");
    if (getenv("FAKE_GPU_FAIL_AFTER") != NULL) fail_after = atol(getenv("FAKE_GPU_FAIL_AFTER"));
    if (getenv("FAKE_GPU_TRACE") != NULL) trace = fopen(getenv("FAKE_GPU_TRACE"), "a");
    n_gpus = getenv("FAKE_GPU_DEVICES") == NULL ? 1 : (size_t) atol(getenv("FAKE_GPU_DEVICES"));
    if (n_gpus > MAX_DEVICES) n_gpus = MAX_DEVICES;
    for (size_t i = 0; i < n_gpus; i++) start(&gpus[i], i, &reg);
    return &reg;
}

GGML_BACKEND_DL_IMPL(fake_reg)
