// Stands in front of the Vulkan loader and makes chosen functions fail, as a driver would whose device is lost or full.
// Loaded with RTLD_GLOBAL before the plugin. vulkan_fault("vkQueueSubmit", 3, VK_ERROR_DEVICE_LOST) lets three more
// calls pass and fails all later ones; an empty name ends that.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <vulkan/vulkan.h>

static char fault_name[64];
static atomic_int fault_after;
static atomic_int fault_result;

void vulkan_fault(const char * name, int after, int result) {
    snprintf(fault_name, sizeof fault_name, "%s", name);
    atomic_store(&fault_after, after);
    atomic_store(&fault_result, result);
}

static int faulty(const char * name) {
    return strcmp(name, fault_name) == 0 && atomic_fetch_sub(&fault_after, 1) <= 0 ? atomic_load(&fault_result) : 0;
}

static PFN_vkGetInstanceProcAddr loader_instance;
static PFN_vkGetDeviceProcAddr loader_device;

// name, parameters, arguments: the function that passes the call on unless it is to fail
#define WRAP(name, parameters, arguments)                                                                              \
    static PFN_##name real_##name;                                                                                     \
    static VKAPI_ATTR VkResult VKAPI_CALL wrap_##name parameters {                                                     \
        const int result = faulty(#name);                                                                              \
        return result != 0 ? (VkResult) result : real_##name arguments;                                                \
    }

WRAP(vkCreateDevice, (VkPhysicalDevice a, const VkDeviceCreateInfo * b, const VkAllocationCallbacks * c, VkDevice * d),
     (a, b, c, d))
WRAP(vkAllocateMemory,
     (VkDevice a, const VkMemoryAllocateInfo * b, const VkAllocationCallbacks * c, VkDeviceMemory * d),
     (a, b, c, d))
WRAP(vkCreateComputePipelines,
     (VkDevice a, VkPipelineCache b, uint32_t c, const VkComputePipelineCreateInfo * d, const VkAllocationCallbacks * e,
      VkPipeline * f),
     (a, b, c, d, e, f))
WRAP(vkQueueSubmit, (VkQueue a, uint32_t b, const VkSubmitInfo * c, VkFence d), (a, b, c, d))
WRAP(vkGetFenceStatus, (VkDevice a, VkFence b), (a, b))

static PFN_vkVoidFunction wrapped(const char * name, PFN_vkVoidFunction found) {
#define GIVE(which)                                                                                                    \
    if (found != NULL && strcmp(name, #which) == 0) {                                                                  \
        real_##which = (PFN_##which) found;                                                                            \
        return (PFN_vkVoidFunction) wrap_##which;                                                                      \
    }
    GIVE(vkCreateDevice)
    GIVE(vkAllocateMemory)
    GIVE(vkCreateComputePipelines)
    GIVE(vkQueueSubmit)
    GIVE(vkGetFenceStatus)
    return found;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char * name) {
    return wrapped(name, loader_device(device, name));
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char * name) {
    if (loader_instance == NULL) {
        void * loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
        if (loader == NULL) {
            return NULL;
        }
        loader_instance = (PFN_vkGetInstanceProcAddr) dlsym(loader, "vkGetInstanceProcAddr");
    }
    PFN_vkVoidFunction found = loader_instance(instance, name);
    if (found != NULL && strcmp(name, "vkGetDeviceProcAddr") == 0) {
        loader_device = (PFN_vkGetDeviceProcAddr) found;
        return (PFN_vkVoidFunction) device_function;
    }
    return wrapped(name, found);
}
