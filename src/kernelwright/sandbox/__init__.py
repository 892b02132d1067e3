"""Runs other people's code in a process of its own, within limits, and leaves nothing behind."""

from kernelwright.sandbox.cage import COMPILED, Cage
from kernelwright.sandbox.child import Child
from kernelwright.sandbox.confine import protections
from kernelwright.sandbox.faults import TaskError
from kernelwright.sandbox.guarded import guard
from kernelwright.sandbox.inspection import can_inspect
from kernelwright.sandbox.limits import Limits
from kernelwright.sandbox.stage_lines import StageLines
from kernelwright.sandbox.warm import Nursery

__all__ = [
    "COMPILED",
    "Cage",
    "Child",
    "Limits",
    "Nursery",
    "StageLines",
    "TaskError",
    "can_inspect",
    "guard",
    "protections",
]
