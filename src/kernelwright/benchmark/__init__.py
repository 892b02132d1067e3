"""Paired timing of variants; each untrusted candidate is timed in its own process."""

import kernelwright.report  # noqa: F401 - attaches the console output of the records
from kernelwright.benchmark.bench import bench

__all__ = ["bench"]
