"""Verify and measure together: is the candidate right, and is it faster."""

from kernelwright.judge.bench import bench

__all__ = ["bench"]
