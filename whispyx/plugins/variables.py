"""Which variables hold something that cannot be understood: for the doctor, who goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from whispyx.errors import ParamsError
from whispyx.plugins import discovery, endpoints, kernels, limits

__all__ = ["READERS", "malformed"]

READERS: Final[Mapping[str, Callable[[], Any]]] = {
    discovery.BACKEND_VARIABLE: discovery.environment_selection,
    discovery.PATH_VARIABLE: discovery.extra_folders,
    discovery.HOME_VARIABLE: discovery.user_folder,
    limits.EXCLUDE_VARIABLE: limits.exclusions,
    limits.VARIANT_VARIABLE: limits.variant,
    endpoints.SERVERS_VARIABLE: endpoints.from_env,
    endpoints.TIMEOUT_VARIABLE: endpoints.timeout_s,
    kernels.COMPUTE_VARIABLE: lambda: kernels.check_compute(None),
    kernels.KERNELS_VARIABLE: kernels.check_wanted,
    limits.MMAP_VARIABLE: limits.may_map,
}
"""What reads each variable of this package; it raises ParamsError."""


def malformed() -> dict[str, str]:
    """Return the variables that cannot be read, and why: a sentence with the variable and its value."""
    found = {}
    for name, read in READERS.items():
        try:
            read()
        except ParamsError as error:
            found[name] = str(error)
    return found
