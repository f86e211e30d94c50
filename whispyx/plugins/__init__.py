"""Compute backends: shared libraries that are found, checked and loaded while the program runs.

`load` loads them, `report` says what became of each, `resolve` turns a selection into device names.
``python -m whispyx.plugins`` prints the report.
"""

from __future__ import annotations

import whispyx._core.base  # noqa: F401  first of all: it refuses to go on with another ggml than ours
from whispyx.plugins.registry import load, report, require_cpu, resolve
from whispyx.plugins.report import PluginRecord, Report

__all__ = ["PluginRecord", "Report", "load", "report", "require_cpu", "resolve"]
