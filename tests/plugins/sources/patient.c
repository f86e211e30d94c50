/* A plugin that adds and multiplies f32 matrices, until the variable PATIENT says what shall be wrong with it. */

#include "ggml-backend-impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool suffers(const char * from) {
    const char * illness = getenv("PATIENT");
    return illness != NULL && strcmp(illness, from) == 0;
}

/* crash, abort, exit and hang, each at a place: "crash-open", "hang-compute", … */
static void fall_ill(const char * place) {
    char name[64];
    snprintf(name, sizeof(name), "crash-%s", place);
    if (suffers(name)) { *(volatile int *) 8 = 1; }
    snprintf(name, sizeof(name), "abort-%s", place);
    if (suffers(name)) { fprintf(stderr, "patient.c:27: assertion failed\n"); abort(); }
    snprintf(name, sizeof(name), "exit-%s", place);
    if (suffers(name)) { exit(0); }
    snprintf(name, sizeof(name), "hang-%s", place);
    while (suffers(name)) { sleep(1); }
}

__attribute__((constructor)) static void opened(void) { fall_ill("open"); }
__attribute__((destructor)) static void closed(void) { fall_ill("close"); }

static const char * backend_name(ggml_backend_t backend) { (void) backend; return "Patient"; }
static void backend_free(ggml_backend_t backend) { free(backend); }

static void add(struct ggml_tensor * y) {
    const float * a = y->src[0]->data, * b = y->src[1]->data;
    for (int64_t i = 0; i < ggml_nelements(y); i++) { ((float *) y->data)[i] = a[i] + b[i]; }
}

static void multiply(struct ggml_tensor * y) {
    const float * w = y->src[0]->data, * x = y->src[1]->data;
    const int64_t n = y->src[0]->ne[0], n_out = y->ne[0];
    for (int64_t j = 0; j < y->ne[1]; j++) {
        for (int64_t i = 0; i < n_out; i++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) { sum += (double) w[i * n + k] * x[j * n + k]; }
            ((float *) y->data)[j * n_out + i] = (float) sum;
        }
    }
    float * values = y->data;
    const int64_t last = ggml_nelements(y) - 1;
    if (suffers("lie")) { for (int64_t i = 0; i <= last; i++) { values[i] *= 1.01f; } }
    if (suffers("lie-once")) { values[last] += 1.0f; }
    if (suffers("nan")) { values[last] = NAN; }
}

static enum ggml_status compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    (void) backend;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor * node = ggml_graph_node(graph, i);
        if (node->op == GGML_OP_ADD) { add(node); }
        if (node->op == GGML_OP_MUL_MAT) {
            fall_ill("compute");
            if (suffers("fail")) { return GGML_STATUS_FAILED; }
            if (suffers("memory")) { return GGML_STATUS_ALLOC_FAILED; }
            if (!suffers("lazy")) { multiply(node); }
        }
    }
    return GGML_STATUS_SUCCESS;
}

static const char * device_name(ggml_backend_dev_t dev) { (void) dev; return "Patient"; }
static const char * device_description(ggml_backend_dev_t dev) { (void) dev; return "adds and multiplies f32"; }
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void device_memory(ggml_backend_dev_t dev, size_t * free_bytes, size_t * total_bytes) {
    (void) dev;
    fall_ill("memory");
    *free_bytes  = 3u << 20;
    *total_bytes = 4u << 20;
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props * props) {
    memset(props, 0, sizeof(*props));
    props->name        = device_name(dev);
    props->description = device_description(dev);
    props->type        = device_type(dev);
}

static ggml_backend_t device_init(ggml_backend_dev_t dev, const char * params) {
    (void) params;
    static ggml_guid guid = "whispyx-patient";
    fall_ill("start");
    ggml_backend_t backend = suffers("no-start") ? NULL : calloc(1, sizeof(*backend));
    if (backend == NULL) { return NULL; }
    backend->guid                = &guid;
    backend->device              = dev;
    backend->iface.get_name      = backend_name;
    backend->iface.free          = backend_free;
    backend->iface.graph_compute = compute;
    return backend;
}

static ggml_backend_buffer_type_t device_memory_type(ggml_backend_dev_t dev) {
    (void) dev;
    return suffers("no-memory-type") ? NULL : ggml_backend_cpu_buffer_type();
}

static bool plain(const struct ggml_tensor * x) {
    return x->type == GGML_TYPE_F32 && ggml_is_contiguous(x) && x->ne[2] == 1 && x->ne[3] == 1;
}

static bool device_op(ggml_backend_dev_t dev, const struct ggml_tensor * op) {
    (void) dev;
    if (op->op == GGML_OP_ADD) {
        return plain(op->src[0]) && plain(op->src[1]) && ggml_are_same_shape(op->src[0], op->src[1]);
    }
    return op->op == GGML_OP_MUL_MAT && plain(op->src[0]) && plain(op->src[1]);
}

static bool device_holds(ggml_backend_dev_t dev, ggml_backend_buffer_type_t memory) {
    (void) dev;
    return ggml_backend_buft_is_host(memory);
}

static const char * reg_name(ggml_backend_reg_t reg) { (void) reg; return "Patient"; }
static size_t reg_count(ggml_backend_reg_t reg) { (void) reg; return 1; }

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    static struct ggml_backend_device device = {
        .iface = {
            .get_name        = device_name,
            .get_description = device_description,
            .get_memory      = device_memory,
            .get_type        = device_type,
            .get_props       = device_props,
            .init_backend    = device_init,
            .get_buffer_type = device_memory_type,
            .supports_op     = device_op,
            .supports_buft   = device_holds,
        },
    };
    device.reg = reg;
    return index == 0 ? &device : NULL;
}

static ggml_backend_reg_t patient_reg(void) {
    static struct ggml_backend_reg reg = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = { .get_name = reg_name, .get_device_count = reg_count, .get_device = reg_device },
    };
    fall_ill("init");
    if (suffers("noisy")) { printf("hello from the driver\n{\"end\": \"done\"}\n"); fflush(stdout); }
    return suffers("refuse") ? NULL : &reg;
}

static int patient_score(void) {
    fall_ill("score");
    return suffers("other-machine") ? 0 : 1;
}

GGML_BACKEND_DL_IMPL(patient_reg)
GGML_BACKEND_DL_SCORE_IMPL(patient_score)
