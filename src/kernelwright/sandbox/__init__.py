"""Runs other people's code in a process of its own, within limits, and leaves nothing behind."""

from kernelwright.sandbox.child import Child
from kernelwright.sandbox.exceptions import TaskError
from kernelwright.sandbox.fork_client import Nursery
from kernelwright.sandbox.isolation import COMPILED, Cage
from kernelwright.sandbox.limits import Limits
from kernelwright.sandbox.process_limits import protections
from kernelwright.sandbox.process_memory import can_inspect
from kernelwright.sandbox.stage_lines import StageLines
from kernelwright.sandbox.supervised import guard

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
