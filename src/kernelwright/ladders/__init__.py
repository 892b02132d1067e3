"""The worklog kernels: a ladder is a folder of sources that each answer the question of the one before."""

from kernelwright.ladders.reading import Rung, device_of, ladder_names, rung, rungs, task_of

__all__ = ["Rung", "device_of", "ladder_names", "rung", "rungs", "task_of"]
