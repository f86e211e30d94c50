/* A complete plugin, as small as it can be: one accelerator that adds two float32 tensors of the same shape.
 *
 * backends/README.md says what each part is for and how to build this file. The tests build it and use it.
 */

#include "ggml-backend-impl.h"

#include <stdlib.h>
#include <string.h>

/* --- the backend: what runs a graph ------------------------------------------------------------------------- */

static const char * backend_name(ggml_backend_t backend) {
    (void) backend;
    return "Example";
}

static void backend_free(ggml_backend_t backend) {
    free(backend);
}

static void add_f32(struct ggml_tensor * sum) {
    const float * a = sum->src[0]->data;
    const float * b = sum->src[1]->data;
    float * out = sum->data;
    const int64_t n = ggml_nelements(sum);
    for (int64_t i = 0; i < n; i++) {
        out[i] = a[i] + b[i];
    }
}

/* Only nodes that device_supports_op has accepted arrive here, and those that compute nothing. */
static enum ggml_status backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    (void) backend;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor * node = ggml_graph_node(graph, i);
        switch (node->op) {
            case GGML_OP_ADD:
                add_f32(node);
                break;
            case GGML_OP_NONE:
            case GGML_OP_RESHAPE:
            case GGML_OP_VIEW:
            case GGML_OP_PERMUTE:
            case GGML_OP_TRANSPOSE:
                break;
            default:
                return GGML_STATUS_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
}

/* --- the device: what the scheduler asks -------------------------------------------------------------------- */

static const char * device_name(ggml_backend_dev_t dev) {
    (void) dev;
    return "Example";
}

static const char * device_description(ggml_backend_dev_t dev) {
    (void) dev;
    return "adds float32 tensors";
}

static void device_memory(ggml_backend_dev_t dev, size_t * free_bytes, size_t * total_bytes) {
    (void) dev;
    *free_bytes  = 0;
    *total_bytes = 0;
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props * props) {
    memset(props, 0, sizeof(*props));
    props->name        = device_name(dev);
    props->description = device_description(dev);
    props->type        = device_type(dev);
}

static ggml_backend_t device_init_backend(ggml_backend_dev_t dev, const char * params) {
    (void) params;
    static ggml_guid guid = "whispyx-example";
    ggml_backend_t backend = calloc(1, sizeof(*backend));
    if (backend == NULL) {
        return NULL;
    }
    backend->guid                = &guid;
    backend->device              = dev;
    backend->iface.get_name      = backend_name;
    backend->iface.free          = backend_free;
    backend->iface.graph_compute = backend_graph_compute;
    return backend;
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t dev) {
    (void) dev;
    return ggml_backend_cpu_buffer_type();
}

static bool is_plain_f32(const struct ggml_tensor * tensor) {
    return tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor);
}

/* The scheduler gives a node to the first device that says yes here: say yes to exactly what you compute right. */
static bool device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor * op) {
    (void) dev;
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return true;
        case GGML_OP_ADD:
            return is_plain_f32(op) && is_plain_f32(op->src[0]) && is_plain_f32(op->src[1]) &&
                   ggml_are_same_shape(op->src[0], op->src[1]);
        default:
            return false;
    }
}

static bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    (void) dev;
    return ggml_backend_buft_is_host(buft);
}

/* --- the registration: what the plugin returns -------------------------------------------------------------- */

static const char * reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Example";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    static struct ggml_backend_device device = {
        .iface = {
            .get_name        = device_name,
            .get_description = device_description,
            .get_memory      = device_memory,
            .get_type        = device_type,
            .get_props       = device_props,
            .init_backend    = device_init_backend,
            .get_buffer_type = device_buffer_type,
            .supports_op     = device_supports_op,
            .supports_buft   = device_supports_buft,
        },
    };
    device.reg = reg;
    return index == 0 ? &device : NULL;
}

static struct ggml_backend_feature * features(ggml_backend_reg_t reg) {
    (void) reg;
    static struct ggml_backend_feature list[] = { { "ADD", "f32" }, { NULL, NULL } };
    return list;
}

static void * reg_proc_address(ggml_backend_reg_t reg, const char * name) {
    (void) reg;
    return strcmp(name, "ggml_backend_get_features") == 0 ? (void *) features : NULL;
}

static ggml_backend_reg_t example_reg(void) {
    static struct ggml_backend_reg reg = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {
            .get_name         = reg_name,
            .get_device_count = reg_device_count,
            .get_device       = reg_device,
            .get_proc_address = reg_proc_address,
        },
    };
    return &reg;
}

static int example_score(void) {
    return 1;
}

/* These two define ggml_backend_init and ggml_backend_score, the functions that the registry looks for. */
GGML_BACKEND_DL_IMPL(example_reg)
GGML_BACKEND_DL_SCORE_IMPL(example_score)
