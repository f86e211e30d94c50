"""How many cores this process may use."""

import math
import os


def usable_cores() -> int:
    """Return how many cores this process may use: its CPU affinity, and its cgroup's quota where there is one."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()[:2]
        if quota != "max":
            n = min(n, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        pass   # no cgroup v2 here, or no quota
    return max(1, n)
