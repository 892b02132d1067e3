"""Optimization worklogs: a ladder is a folder of kernel sources, each improving on the one before."""

from kernelwright.ladders.rungs import Rung, find_rung, ladder_device, ladder_names, needs_tma, read_rungs, task_path

__all__ = ["Rung", "find_rung", "ladder_device", "ladder_names", "needs_tma", "read_rungs", "task_path"]
