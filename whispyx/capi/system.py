"""Version, system information, logging, micro-benchmarks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from whispyx import plugins
from whispyx._core import devices, kernels, microbench
from whispyx.capi._log import route
from whispyx.capi._struct import thread_count
from whispyx.encoders import coreml, openvino
from whispyx.errors import WhispyxError
from whispyx.fallback import remembered
from whispyx.plugins.limits import variant_of
from whispyx.plugins.report import EXCLUDED

if TYPE_CHECKING:
    from whispyx.capi.constants import ggml_log_callback

__all__ = [
    "whisper_bench_ggml_mul_mat",
    "whisper_bench_ggml_mul_mat_str",
    "whisper_bench_memcpy",
    "whisper_bench_memcpy_str",
    "whisper_log_set",
    "whisper_print_system_info",
    "whisper_version",
]

API_VERSION: Final = "1.8.5"


def whisper_version() -> str:
    """const char * whisper_version(void)

    Version of the API that this package has: that of whisper.cpp. `whispyx.__version__` is our own.
    """
    return API_VERSION


def whisper_print_system_info() -> str:
    """const char * whisper_print_system_info(void)

    One line: which external encoders can be used, their Python packages being installed; then for every device its
    plugin, name, description, the variant of the plugin that was loaded, and what the plugin says about itself
    (instruction sets, for the CPU). After them, which plugins and devices are not used by default and why (FALLBACK),
    and what the user has ruled out (EXCLUDED); or why the plugins that were asked for cannot be loaded (ERROR).
    """
    parts = [f"WHISPER : COREML = {coreml.available():d} | OPENVINO = {openvino.available():d}"]
    try:
        now = plugins.load()
    except WhispyxError as error:  # in C this function cannot fail
        now = plugins.report()
        parts.append(f"ERROR : {_plain(error)}")
    for device in devices.devices():
        facts = {"DEVICE": f"{device.name} ({device.description.strip()})"}
        # A library made for one kind of CPU has its name at the end, as in libwhispyx-ggml-cpu-haswell.so.
        variant = variant_of(device.plugin_path)
        if variant:
            facts["VARIANT"] = variant
        facts |= device.features()
        parts.append(f"{device.backend.upper()} : " + " | ".join(f"{key} = {value}" for key, value in facts.items()))
    used = kernels.name()
    if used is not None:
        parts.append(
            "KERNELS : " + " | ".join([used, *(f"{key} = {value}" for key, value in kernels.products().items())])
        )
    parts += [f"FALLBACK : {_plain(fallback)}" for fallback in (*now.fallbacks, *remembered())]
    parts += [f"EXCLUDED : {_plain(record.path)}" for record in now.found if record.status == EXCLUDED]
    return " | ".join(parts) + " | "


def _plain(value: object) -> str:
    """Return a text that holds no separator of this line."""
    return " ".join(str(value).replace("|", "/").split())


def whisper_log_set(log_callback: ggml_log_callback | None, user_data: Any = None) -> None:
    """void whisper_log_set(ggml_log_callback log_callback, void * user_data)

    Sends the lines of the loggers below "whispyx" to log_callback(level, text, user_data) and nowhere else, whatever
    their level; text ends with a line feed. None restores what was there before. What the callback raises is reported
    on standard error, since lines also come from threads that nobody waits for.
    """
    if log_callback is not None and not callable(log_callback):
        raise TypeError(f"log_callback must be callable or None, not {log_callback!r}")
    route(log_callback, user_data)


def whisper_bench_memcpy_str(n_threads: int) -> str:
    """const char * whisper_bench_memcpy_str(int n_threads)

    Measures how fast memory is copied: once to warm up, then with one thread, then with 1 to n_threads threads. Needs
    2 GB of memory. Ctrl-C stops it.
    """
    rates = microbench.memcpy_rates(thread_count(n_threads))
    return "".join(f"memcpy: {gb_per_s:8.2f} GB/s ({name})\n" for name, gb_per_s in rates)


def whisper_bench_memcpy(n_threads: int) -> int:
    """int whisper_bench_memcpy(int n_threads)

    Prints the report of whisper_bench_memcpy_str to standard error and returns 0.
    """
    print(whisper_bench_memcpy_str(n_threads), file=sys.stderr)
    return 0


def whisper_bench_ggml_mul_mat_str(n_threads: int) -> str:
    """const char * whisper_bench_ggml_mul_mat_str(int n_threads)

    Measures matrix products of n x n matrices, n from 64 to 4096, for seven weight types: at most 128 runs each, no
    more than fit into a second once there were three. Ctrl-C stops it.
    """
    number = thread_count(n_threads)
    plugins.load()
    lines = []
    for size in microbench.MUL_MAT_SIZES:
        rates = []
        for name in microbench.MUL_MAT_TYPES:
            gflops, runs = microbench.mul_mat_rate(name, size, number)
            rates.append(f"{name:>4} {gflops:7.1f} GFLOPS ({runs:3d} runs)")
        for start in range(0, len(rates), 4):
            lines.append(f"{size:4d} x {size:4d}: {' | '.join(rates[start : start + 4])}\n")
    return "".join(lines)


def whisper_bench_ggml_mul_mat(n_threads: int) -> int:
    """int whisper_bench_ggml_mul_mat(int n_threads)

    Prints the report of whisper_bench_ggml_mul_mat_str to standard error and returns 0.
    """
    print(whisper_bench_ggml_mul_mat_str(n_threads), file=sys.stderr)
    return 0
