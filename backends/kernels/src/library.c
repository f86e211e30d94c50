/* The three symbols of a kernel library. This file is compiled without instruction-set flags: it is asked first. */
#include "internal.h"

#define WX_EXPORT __attribute__((visibility("default")))

WX_EXPORT int whispyx_kernels_abi(void) { return WX_KERNELS_ABI; }

/* The better set has the higher score; what the processor or the system does not support has none. */
WX_EXPORT int whispyx_kernels_score(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#if defined(WX_ISA_AVX2)
    return 10;
#elif defined(WX_EMULATED)
    return 1;                   /* for tests, which open it themselves */
#else
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512vnni")) return 0;
#if defined(WX_ISA_AVX512)
    return 20;
#else
    return __builtin_cpu_supports("avx512bf16") ? 30 : 0;
#endif
#endif
}

static const wx_kernels table = {
    .abi = WX_KERNELS_ABI,
    .size = sizeof(wx_kernels),
#if defined(WX_ISA_AVX2)
    .name = "avx2", .bf16 = "f32", .i8 = "s16 x s8",
#elif defined(WX_ISA_AVX512)
    .name = "avx512", .bf16 = "f32", .i8 = "u8 x s8 dot",
#else
    .name = "avx512-bf16", .bf16 = "bf16 dot", .i8 = "u8 x s8 dot",
#endif
    .matrix_bytes = wx_matrix_bytes,
    .pack = wx_pack,
    .matmul_bytes = wx_matmul_bytes,
    .matmul = wx_matmul,
    .cross_bytes = wx_cross_bytes,
    .encode_bytes = wx_encode_bytes,
    .encode = wx_encode_stage,
    .decode_bytes = wx_decode_bytes,
    .decode = wx_decode_stage,
    .scan = wx_scan_row,
    .mel = wx_mel_frames,
    .peak = wx_peak,
};

WX_EXPORT const wx_kernels * whispyx_kernels(void) { return &table; }
