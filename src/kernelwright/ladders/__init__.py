"""The worklog kernels: a ladder is a folder of sources that each answer the question of the one before."""

from kernelwright.ladders.rungs import Rung, ladder_names, rung, rungs

__all__ = ["Rung", "ladder_names", "rung", "rungs"]
