/* A plugin with one thing wrong with it; which one is chosen with -D when it is compiled. Without any, it is sound. */

#include "ggml-backend-impl.h"

#include "ggml-impl.h"

#include <stddef.h>

#ifndef ODD_API_VERSION
#define ODD_API_VERSION GGML_BACKEND_API_VERSION
#endif
#ifndef ODD_DEVICES
#define ODD_DEVICES 1
#endif
#ifndef ODD_DEVICE_NAME
#define ODD_DEVICE_NAME "Odd"
#endif
#ifndef ODD_KIND
#define ODD_KIND GGML_BACKEND_DEVICE_TYPE_ACCEL
#endif

#define EXPORT __attribute__((visibility("default")))

#ifdef ODD_CALLS_NOWHERE
extern int whispyx_test_function_that_exists_nowhere(void);
EXPORT int odd_calls_nowhere(void) { return whispyx_test_function_that_exists_nowhere(); }
#endif
#ifdef ODD_NEEDS
extern int odd_dependency(void);
EXPORT int odd_calls_dependency(void) { return odd_dependency(); }
#endif
#ifdef ODD_OWN_GGML
EXPORT ggml_backend_buffer_t ggml_backend_buffer_init(
        ggml_backend_buffer_type_t buft, struct ggml_backend_buffer_i iface, void * context, size_t size) {
    (void) buft; (void) iface; (void) context; (void) size;
    return NULL;
}
#endif

static const char * device_name(ggml_backend_dev_t dev) { (void) dev; return ODD_DEVICE_NAME; }
static const char * device_description(ggml_backend_dev_t dev) { (void) dev; return "for tests"; }
static void device_memory(ggml_backend_dev_t dev, size_t * f, size_t * t) { (void) dev; *f = 1 << 20; *t = 1 << 21; }
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) { (void) dev; return ODD_KIND; }
static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props * props) { (void) dev; (void) props; }
static ggml_backend_t device_init(ggml_backend_dev_t dev, const char * p) { (void) dev; (void) p; return NULL; }
static ggml_backend_buffer_type_t device_buft(ggml_backend_dev_t dev) { (void) dev; return NULL; }
bool device_op(ggml_backend_dev_t dev, const struct ggml_tensor * op) { (void) dev; (void) op; return false; }
static bool device_holds(ggml_backend_dev_t dev, ggml_backend_buffer_type_t b) { (void) dev; (void) b; return false; }


#ifndef ODD_SUPPORTS_OP
#define ODD_SUPPORTS_OP device_op
#endif
#define DEVICE { .iface = { \
        .get_name = device_name, .get_description = device_description, .get_memory = device_memory, \
        .get_type = device_type, .get_props = device_props, .init_backend = device_init, \
        .get_buffer_type = device_buft, .supports_op = ODD_SUPPORTS_OP, .supports_buft = device_holds } }

static const char * reg_name(ggml_backend_reg_t reg) { (void) reg; return "Odd"; }
static size_t reg_count(ggml_backend_reg_t reg) { (void) reg; return ODD_DEVICES; }

ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
#ifdef ODD_NULL_DEVICE
    (void) reg; (void) index;
    return NULL;
#else
    static struct ggml_backend_device devices[2] = { DEVICE, DEVICE };
    devices[index].reg = reg;
    return &devices[index];
#endif
}
#ifndef ODD_REG_DEVICE
#define ODD_REG_DEVICE reg_device
#endif

#ifndef ODD_NO_INIT
EXPORT ggml_backend_reg_t ggml_backend_init(void) {
#ifdef ODD_SAYS
    GGML_LOG_WARN("%s\n", ODD_SAYS);
#endif
#ifdef ODD_INIT_NULL
    return NULL;
#else
    static struct ggml_backend_reg reg = {
        .api_version = ODD_API_VERSION,
        .iface = { .get_name = reg_name, .get_device_count = reg_count, .get_device = ODD_REG_DEVICE },
    };
    return &reg;
#endif
}
#endif

#ifdef ODD_SCORE
EXPORT int ggml_backend_score(void) { return ODD_SCORE; }
#endif
#ifdef ODD_GGML_VERSION
EXPORT const char * whispyx_plugin_ggml_version(void) { return ODD_GGML_VERSION; }
#endif
