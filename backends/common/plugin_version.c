/* Linked into every plugin we build: says which ggml the plugin was compiled against. Plugins and the base library
 * share structs whose layout changes between releases, and the interface number alone does not show that. */

#if defined(_WIN32)
#    define WHISPYX_EXPORT __declspec(dllexport)
#else
#    define WHISPYX_EXPORT __attribute__((visibility("default")))
#endif

WHISPYX_EXPORT const char * whispyx_plugin_ggml_version(void);

const char * whispyx_plugin_ggml_version(void) {
    return WHISPYX_GGML_VERSION;
}
