"""What to do about what `doctor` found, in sentences."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

from whispyx.plugins import doctor
from whispyx.plugins.discovery import BACKEND_VARIABLE
from whispyx.plugins.doctor import Diagnosis, Examination
from whispyx.plugins.limits import EXCLUDE_VARIABLE, VARIANT_VARIABLE

__all__ = ["OTHERS", "VARIABLES", "advice", "in_force"]

VARIABLES: Final = (
    *(BACKEND_VARIABLE, "WHISPYX_BACKEND_PATH", EXCLUDE_VARIABLE, VARIANT_VARIABLE, "WHISPYX_PLUGIN_HOME"),
    *(
        "WHISPYX_RPC_SERVERS",
        "WHISPYX_RPC_TIMEOUT",
        "WHISPYX_ENCODER",
        "WHISPYX_COMPUTE",
        "WHISPYX_KERNELS",
        "WHISPYX_MMAP",
        "WHISPYX_CACHE",
        "WHISPYX_OFFLINE",
        "WHISPYX_HUB",
    ),
    *("WHISPYX_GGML_SOURCE", "WHISPYX_BUILD_BACKENDS", "WHISPYX_CPU_VARIANTS", "WHISPYX_BUILD_JOBS"),
    *("WHISPYX_BUILD_OFFLINE", "WHISPYX_BUILD_TYPE", "WHISPYX_PEERS", "WHISPYX_REQUIRE_PEERS"),
    *(
        "WHISPYX_SLOW_TESTS",
        "WHISPYX_FULL_PARITY",
        "WHISPYX_TEST_PLUGINS",
        "WHISPYX_TEST_KERNELS",
        "WHISPYX_TEST_COMPUTE",
    ),
)
"""Those of whispyx: docs/environment.md."""

OTHERS: Final = re.compile(
    r"GGML_\w+|CUDA_(VISIBLE_DEVICES|LAUNCH_BLOCKING)|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HSA_OVERRIDE_GFX_VERSION"
    r"|ONEAPI_DEVICE_SELECTOR|MUSA_VISIBLE_DEVICES|ASCEND_RT_VISIBLE_DEVICES|VK_\w+|MESA_\w+|LP_NUM_THREADS"
    r"|OPENBLAS_\w+|OMP_NUM_THREADS|MKL_NUM_THREADS|LD_PRELOAD|LD_LIBRARY_PATH"
)
"""Those of ggml, of drivers and of the linker that change what backends do."""

CLOSE: Final = 0.85  # how like a name must be to be taken for a slip
_SECRET: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")

_SOFTWARE: Final = re.compile("llvmpipe|lavapipe|swiftshader|pocl|software", re.IGNORECASE)

# Files that drivers make for hardware, and the backends that use it.
_HARDWARE: Final = (
    ("/dev/nvidiactl", "an NVIDIA GPU", ("cuda", "vulkan")),
    ("/dev/kfd", "an AMD GPU", ("hip", "vulkan")),
    ("/dev/dri/renderD*", "a GPU", ("vulkan", "sycl", "opencl")),
)


def in_force(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter to backends, without what may be secret in them."""
    names = sorted(name for name in environment if name.startswith("WHISPYX_") or OTHERS.fullmatch(name))
    return {name: _SECRET.sub("…", environment[name]) for name in names}


def advice(found: Diagnosis, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return what to do, most pressing first; empty when there is nothing."""
    about_program = [*_malformed(found), *_harm(found), *_program(found, environment)]
    return [*about_program, *_plugins(found), *_variables(found, environment), *_hardware(found)]


def _malformed(found: Diagnosis) -> Iterator[str]:
    for name, why in found.malformed.items():
        told = why if name in why else f"{name}: {why}"
        yield f"{told}. Correct {name}, or unset it; above, plugins were tried as if it were not set."


def _harm(found: Diagnosis) -> Iterator[str]:
    for plugin in found.harmful:
        verb = {
            doctor.CRASHES: "takes the process with it",
            doctor.LEAVES: "ends the process",
            doctor.HANGS: "never comes back",
            doctor.LIES: "computes wrong numbers",
            doctor.FAILS: "fails while it computes",
        }[plugin.status]
        yield f"{plugin.label} {verb}: {plugin.reason}. Do not use {plugin.path}."
    if not found.harmful or found.without is None:
        return
    setting = f"{EXCLUDE_VARIABLE}={found.exclude}"
    if found.without.works:
        yield f"Set {setting}. This has been tried: a program then computes on {', '.join(found.without.devices)}."
    else:
        yield f"Even {setting} does not help: {found.without.text}."
        if BACKEND_VARIABLE in found.without.text:
            yield f"Take what is left out from {BACKEND_VARIABLE}, too."


def _program(found: Diagnosis, environment: Mapping[str, str]) -> Iterator[str]:
    cpus = [plugin for plugin in found.plugins if plugin.name == "cpu"]
    if not any(plugin.status in (doctor.SOUND, doctor.CRASHES_LATE) for plugin in cpus):
        ruled_out = [plugin.label for plugin in cpus if plugin.status == doctor.EXCLUDED]
        if ruled_out:
            yield (
                f"{EXCLUDE_VARIABLE}={environment.get(EXCLUDE_VARIABLE, '')} rules out {', '.join(ruled_out)}, and no "
                f"other CPU plugin works: nothing can be transcribed without one. Take one of them out of the variable."
            )
        else:
            yield "There is no CPU plugin that works, and nothing can be transcribed without: install whispyx again."
    elif not found.program.works and not found.harmful and found.program.text not in found.malformed.values():
        yield f"A program cannot load its backends: {found.program.text}."


def _plugins(found: Diagnosis) -> Iterator[str]:
    for plugin in found.plugins:
        if plugin.status == doctor.REFUSED:
            yield (
                f"{plugin.label} cannot be used: {plugin.reason}. Build or install it again "
                f"('whispyx backends list' knows which can be built), or remove {plugin.path}."
            )
        elif plugin.status == doctor.CRASHES_LATE:
            yield f"{plugin.label} computes well, but {plugin.reason}: programs that use it seem to fail."
        elif plugin.status == doctor.SOUND and plugin.devices and not any(d.right for d in plugin.devices):
            yield f"{plugin.label} supports none of the operations that were tried; it does no harm and is of no use."
        for device in plugin.devices:
            if device.name in found.program.devices and device.kind != "CPU" and _SOFTWARE.search(device.description):
                yield (
                    f"{device.name} is no hardware but a program on this processor ({device.description}), and slower "
                    f"than the CPU plugin: set {BACKEND_VARIABLE}=cpu, or {EXCLUDE_VARIABLE}={plugin.label}."
                )
    yield from (f"A place cannot be searched: {problem}." for problem in found.problems)


def _variables(found: Diagnosis, environment: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(environment):
        if name.startswith("WHISPYX_") and name not in VARIABLES:
            close = difflib.get_close_matches(name, VARIABLES, 1, CLOSE)
            if close:
                yield f"{name} is no variable of whispyx; is {close[0]} meant?"
    yield from _idle_exclusions(found, environment)
    best = _best_cpu(found)
    wanted = environment.get(VARIANT_VARIABLE, "").strip()
    odd = VARIANT_VARIABLE in found.malformed
    if best is not None and wanted and not odd and best.tag.lower() != wanted.lower():
        yield f"{VARIANT_VARIABLE} holds whispyx to {wanted}; {best.tag} suits this machine better."


def _idle_exclusions(found: Diagnosis, environment: Mapping[str, str]) -> Iterator[str]:
    """Tell about entries that rule nothing out: a slip, or a plugin that is not here."""
    if EXCLUDE_VARIABLE in found.malformed:
        return
    names = {word for plugin in found.plugins for word in (plugin.name, plugin.label.lower())}
    paths = {os.path.realpath(plugin.path) for plugin in found.plugins}
    for entry in filter(None, map(str.strip, environment.get(EXCLUDE_VARIABLE, "").split(","))):
        if entry.lower() not in names and os.path.realpath(entry) not in paths:
            known = ", ".join(dict.fromkeys(plugin.label for plugin in found.plugins)) or "none"
            yield f"{EXCLUDE_VARIABLE} names {entry!r}, which rules nothing out here; there are: {known}."


def _best_cpu(found: Diagnosis) -> Examination | None:
    cpus = [p for p in found.plugins if p.name == "cpu" and p.status == doctor.SOUND and p.score is not None]
    return max(cpus, key=lambda plugin: plugin.score or 0, default=None)


def _hardware(found: Diagnosis) -> Iterator[str]:
    if any(device.kind in ("GPU", "IGPU") for plugin in found.plugins for device in plugin.devices):
        return
    for pattern, what, backends in _HARDWARE:
        if glob.glob(pattern):
            names = " or ".join(f"'whispyx backends build {name}'" for name in backends)
            yield f"This machine seems to have {what} ({pattern}), but no plugin offers it: {names} makes one."
            return
