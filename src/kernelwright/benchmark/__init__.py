"""Paired timing of variants; untrusted candidates are timed in processes of their own."""

import kernelwright.report  # noqa: F401 - its records print and draw themselves
from kernelwright.benchmark.bench import bench

__all__ = ["bench"]
