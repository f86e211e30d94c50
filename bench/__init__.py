"""Benchmarks, run by hand. They compare engines within one run and print ratios; see README.md."""

from __future__ import annotations
