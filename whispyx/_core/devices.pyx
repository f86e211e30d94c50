"""The device table of the process: what the loaded plugins offer, and which devices a model shall run on.

Upstream's own registry (libggml) is not linked; this table stands in its place. Plugins are never unloaded, so a
`Device`, once made, stays valid until the process ends.
"""

from __future__ import annotations

import threading

cimport cython
from libc.stdint cimport uint64_t, uintptr_t

from whispyx._core.log cimport last_line
from whispyx._ggml.ggml_backend cimport (
    GGML_BACKEND_DEVICE_TYPE_ACCEL,
    GGML_BACKEND_DEVICE_TYPE_CPU,
    GGML_BACKEND_DEVICE_TYPE_GPU,
    GGML_BACKEND_DEVICE_TYPE_IGPU,
    GGML_BACKEND_DEVICE_TYPE_META,
    ggml_backend_dev_description,
    ggml_backend_dev_memory,
    ggml_backend_dev_name,
    ggml_backend_dev_t,
    ggml_backend_dev_type_,
    ggml_backend_feature,
    ggml_backend_get_features_t,
    ggml_backend_reg_dev_count,
    ggml_backend_reg_dev_get,
    ggml_backend_reg_get_proc_address,
    ggml_backend_reg_t,
)

import whispyx._core.log  # a plugin logs while it starts, so the callback must be set before the first one does
from whispyx._core.base import base_library, ggml_version
from whispyx.errors import (
    BackendAbiError,
    BackendLoadError,
    BackendNotFoundError,
    BackendUnsupportedError,
    DeviceError,
    ParamsError,
    StateError,
)

__all__ = [
    "Device",
    "base_library",
    "cpu_device",
    "devices",
    "engine_message",
    "ggml_version",
    "register_backend",
    "select",
]

# Only the members that are looked at before the plugin's own functions may be called.
cdef extern from "ggml-backend-impl.h" nogil:
    const int GGML_BACKEND_API_VERSION

    struct reg_i "ggml_backend_reg_i":
        void * get_name
        void * get_device_count
        void * get_device

    struct reg_layout "ggml_backend_reg":
        int api_version
        reg_i iface

    struct device_i "ggml_backend_device_i":
        void * get_name
        void * get_description
        void * get_memory
        void * get_type
        void * get_props
        void * init_backend
        void * get_buffer_type
        void * supports_op
        void * supports_buft

    struct device_layout "ggml_backend_device":
        device_i iface

cdef dict KINDS = {
    <int>GGML_BACKEND_DEVICE_TYPE_CPU: "CPU",
    <int>GGML_BACKEND_DEVICE_TYPE_GPU: "GPU",
    <int>GGML_BACKEND_DEVICE_TYPE_IGPU: "IGPU",
    <int>GGML_BACKEND_DEVICE_TYPE_ACCEL: "ACCEL",
    <int>GGML_BACKEND_DEVICE_TYPE_META: "META",
}

# Registration order. A plugin's entry is replaced as a whole and never shrinks, so a reader that holds the GIL
# always sees complete plugins.
cdef tuple table = ()
cdef dict by_registration = {}
cdef object registering = threading.RLock()


@cython.final
cdef class Device:
    """One compute device that a loaded plugin offers. Made by `register_backend` only; immutable."""

    def __init__(self):
        raise TypeError("a Device comes from whispyx.plugins; it cannot be made by hand")

    def __repr__(self) -> str:
        return f"<Device {self.name!r} kind={self.kind} backend={self.backend}:{self.index}>"

    cdef int check(self) except -1:
        if self.dev == NULL:
            raise StateError("this Device was made by hand and stands for no device")
        return 0

    cdef void * proc(self, const char * name) except? NULL:
        """Return the address of a function that the plugin offers by name, NULL when it does not offer it."""
        self.check()
        return ggml_backend_reg_get_proc_address(self.reg, name)

    def memory(self) -> tuple[int, int]:
        """Return (free, total) memory of the device in bytes; (0, 0) when it does not say."""
        cdef size_t free = 0
        cdef size_t total = 0
        self.check()
        with nogil:
            ggml_backend_dev_memory(self.dev, &free, &total)
        return free, total

    def error(self) -> str | None:
        """Return why the device cannot be used now, in the plugin's words; None when nothing speaks against it."""
        cdef const char * why = NULL
        self.check()
        if self.error_fn != NULL:
            with nogil:
                why = self.error_fn(self.dev)
        return None if why == NULL else text(why)

    def losses(self) -> int:
        """Return how often everything in the device's memory was lost; 0 when the plugin does not say."""
        cdef uint64_t n = 0
        self.check()
        if self.losses_fn != NULL:
            with nogil:
                n = self.losses_fn(self.dev)
        return n

    def features(self) -> dict[str, str]:
        """Return what the plugin says about itself, for example ``{"AVX2": "1"}``; empty when it says nothing."""
        cdef ggml_backend_get_features_t ask = <ggml_backend_get_features_t>self.proc(b"ggml_backend_get_features")
        cdef ggml_backend_feature * item
        result = {}
        if ask == NULL:
            return result
        item = ask(self.reg)
        while item != NULL and item.name != NULL:
            result[text(item.name)] = text(item.value)
            item += 1
        return result


cdef class Watch:
    """Tells whether what was put into the memory of some devices is still there.

    Most devices are there or the process is not. One on another machine, or behind a driver that is started again, can
    go: its plugin then computes nothing, gives zeros when it is read, and says so if it is asked.
    """

    @staticmethod
    cdef Watch of(list devices):
        cdef Watch self = Watch.__new__(Watch)
        cdef Device device
        self.devices, self.losses = [], []
        for device in devices:
            if device.error_fn != NULL or device.losses_fn != NULL:
                self.devices.append(device)
                self.losses.append(device.losses())
        return self

    cdef int check(self) except -1:
        """Raise DeviceError if a device has gone, or has come back without what it held."""
        cdef Device device
        cdef Py_ssize_t i
        for i in range(len(self.devices)):
            device = self.devices[i]
            if device.losses() != self.losses[i]:
                raise DeviceError(f"device {device.name} was lost, and everything in its memory: "
                                  f"{device.error() or 'it is back, but empty'}")
            if device.losses_fn == NULL and (why := device.error()) is not None:
                raise DeviceError(f"device {device.name} has failed: {why}")
        return 0

    cdef bint broken(self):
        """Whether `check` raises."""
        try:
            self.check()
        except DeviceError:
            return True
        return False


cdef str device_error(ggml_backend_dev_t dev):
    """Return why a device cannot be used now; None when nothing speaks against it."""
    for device in table:
        if (<Device>device).dev == dev:
            return device.error()
    return None


cdef str text(const char * value):
    return "" if value == NULL else (<bytes>value).decode("utf-8", "replace")


def engine_message() -> str | None:
    """Return ggml's last warning or error and forget it; None when there was none."""
    return last_line()


cdef int check_device(ggml_backend_dev_t dev, size_t i) except -1:
    cdef device_layout * layout = <device_layout *>dev
    if dev == NULL:
        raise BackendLoadError(f"it counts device {i} but returns NULL for it")
    cdef device_i * f = &layout.iface
    if (
        f.get_name == NULL or f.get_description == NULL or f.get_memory == NULL or f.get_type == NULL
        or f.get_props == NULL or f.init_backend == NULL or f.get_buffer_type == NULL or f.supports_op == NULL
        or f.supports_buft == NULL
    ):
        raise BackendLoadError(f"its device {i} leaves a function unset that ggml requires")
    return 0


def register_backend(reg_address: int, plugin: str, path: str, first: int = 0) -> tuple[Device, ...]:
    """Add the devices of a plugin to the table.

    Parameters
    ----------
    reg_address : int
        What the plugin's `ggml_backend_init` returned.
    plugin : str
        Name of the plugin, in lower case.
    path : str
        File the plugin was loaded from.
    first : int
        Index of its first device, when the plugin has registered others before.

    Returns
    -------
    tuple of Device
        The devices of this plugin. Registering the same address again changes nothing and returns the same objects.

    Raises
    ------
    BackendAbiError
        The plugin was made for another version of ggml's backend interface. No other field has been read then.
    BackendUnsupportedError
        The plugin has no device on this machine.
    BackendLoadError
        The plugin breaks ggml's interface, or one of its devices has a name that is taken.
    """
    with registering:
        return add(reg_address, plugin, path, first)


cdef tuple add(uintptr_t address, str plugin, str path, int first):
    global table
    cdef reg_layout * layout = <reg_layout *>address
    cdef ggml_backend_reg_t reg = <ggml_backend_reg_t>address
    cdef ggml_backend_dev_t dev
    cdef Device device
    cdef size_t i, count
    if address == 0:
        raise BackendLoadError("its ggml_backend_init returned NULL")
    if address in by_registration:
        return by_registration[address]
    if layout.api_version != GGML_BACKEND_API_VERSION:
        raise BackendAbiError(
            f"it speaks version {layout.api_version} of ggml's backend interface and this build needs version "
            f"{GGML_BACKEND_API_VERSION}; build it against ggml {ggml_version()}"
        )
    if layout.iface.get_name == NULL or layout.iface.get_device_count == NULL or layout.iface.get_device == NULL:
        raise BackendLoadError("it leaves a registration function unset that ggml requires")
    with nogil:  # a driver's threads may log, and the log callback takes the GIL
        count = ggml_backend_reg_dev_count(reg)
    if count == 0:
        raise BackendUnsupportedError("it finds no device on this machine")
    taken = {(<Device>known).name.casefold(): known for known in table}
    found = []
    for i in range(count):
        with nogil:
            dev = ggml_backend_reg_dev_get(reg, i)
        check_device(dev, i)
        device = Device.__new__(Device)
        device.dev = dev
        device.reg = reg
        device.name = text(ggml_backend_dev_name(dev))
        device.description = text(ggml_backend_dev_description(dev))
        device.kind = KINDS.get(<int>ggml_backend_dev_type_(dev))
        device.backend = plugin
        device.index = first + <int>i
        device.plugin_path = path
        device.error_fn = <device_error_t>ggml_backend_reg_get_proc_address(reg, b"whispyx_device_error")
        device.losses_fn = <device_losses_t>ggml_backend_reg_get_proc_address(reg, b"whispyx_device_losses")
        if not device.name or device.kind is None:
            raise BackendLoadError(f"its device {i} has no name or an unknown type")
        other = taken.setdefault(device.name.casefold(), device)
        if other is not device:
            raise BackendLoadError(
                f"it has a device named {device.name!r}, but plugin {(<Device>other).backend!r} "
                f"({(<Device>other).plugin_path}) already has one of that name"
            )
        found.append(device)
    by_registration[address] = tuple(found)
    table = table + tuple(found)
    return by_registration[address]


def devices() -> tuple[Device, ...]:
    """Return every device that is known now, in the order of registration."""
    return table


def cpu_device() -> Device:
    """Return the CPU device: that of the plugin "cpu", which offers the thread pool, before any other of this kind.

    Raises
    ------
    BackendNotFoundError
        No CPU plugin has been loaded.
    """
    found = [device for device in table if (<Device>device).kind == "CPU"]
    for device in found:
        if (<Device>device).backend == "cpu":
            return device
    if found:
        return found[0]
    raise BackendNotFoundError(
        "no CPU device: no CPU plugin has been loaded; call whispyx.plugins.load() first, and if that does not help, "
        "`python -m whispyx.plugins` shows which plugins were found and why each was refused"
    )


cdef str listing():
    if not table:
        return "none is loaded"
    return ", ".join(f"{(<Device>d).name} ({(<Device>d).backend}:{(<Device>d).index})" for d in table)


cdef Device find(object wanted):
    if not isinstance(wanted, str):
        raise ParamsError(f"a device is named by a str, not by {type(wanted).__name__}")
    name = wanted.strip().casefold()
    for device in table:
        if (<Device>device).name.casefold() == name:
            return device
    plugin, colon, index = name.partition(":")
    for device in table:
        if (<Device>device).backend == plugin and str((<Device>device).index) == (index if colon else "0"):
            return device
    raise BackendNotFoundError(f"there is no device {wanted!r}; the devices are: {listing()}")


def select(use_gpu: bool = True, gpu_device: int = 0, names: Sequence[str] | None = None) -> list[Device]:
    """Return the devices a model shall run on, in the order the scheduler prefers them. The CPU is always the last.

    Parameters
    ----------
    use_gpu : bool
        Put a GPU first when there is one.
    gpu_device : int
        Which GPU, from 0. Integrated GPUs count after the others.
    names : sequence of str, optional
        Exactly these devices, best first: device names (``"Vulkan0"``), plugin names (``"vulkan"``, its first device)
        or ``"plugin:index"``. Case does not matter, repetitions are dropped, and the CPU moves to the end wherever it
        stands and is added when missing. `use_gpu` False leaves the GPUs among them out, and `gpu_device` above 0
        keeps only that one of them.

    Raises
    ------
    BackendNotFoundError
        A name is unknown, `gpu_device` is larger than 0 and there are not that many GPUs, or there is no CPU device.
    ParamsError
        `gpu_device` is negative, or `names` is not a sequence of str.
    """
    cdef Device device
    cpu = cpu_device()
    if gpu_device < 0:
        raise ParamsError(f"gpu_device is {gpu_device}, but it counts from 0")
    if names is None:
        ordered = ordered_gpus(table) + [d for d in table if (<Device>d).kind == "ACCEL"]
    else:
        if isinstance(names, (str, bytes)):
            raise ParamsError("names is a sequence of device names, not one string")
        ordered = []
        for name in names:
            device = find(name)
            if device is not cpu and device not in ordered:
                ordered.append(device)
    gpus = [d for d in ordered if (<Device>d).kind in ("GPU", "IGPU")]
    if not use_gpu:
        wanted = []
    elif gpu_device > 0 or names is None:
        wanted = gpus[gpu_device:gpu_device + 1]
        if gpu_device > 0 and not wanted:
            raise BackendNotFoundError(
                f"gpu_device is {gpu_device}, but there are {len(gpus)} GPUs to choose from; the devices are: "
                f"{listing()}"
            )
    else:
        wanted = gpus
    return [*[d for d in ordered if d not in gpus or d in wanted], cpu]


cdef list ordered_gpus(tuple devices):
    return [d for d in devices if (<Device>d).kind == "GPU"] + [d for d in devices if (<Device>d).kind == "IGPU"]
