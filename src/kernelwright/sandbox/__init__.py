"""Run untrusted code in a child process with time and memory limits, and clean up everything it leaves behind."""

from kernelwright.sandbox.child import Child
from kernelwright.sandbox.exceptions import TaskError
from kernelwright.sandbox.fork_client import ForkServer
from kernelwright.sandbox.isolation import COMPILE_CACHES, Isolation
from kernelwright.sandbox.limits import Limits
from kernelwright.sandbox.process_limits import protections
from kernelwright.sandbox.process_memory import can_inspect
from kernelwright.sandbox.stage_lines import ElapsedTime, StageLines
from kernelwright.sandbox.supervised import run_supervised

__all__ = [
    "COMPILE_CACHES",
    "Child",
    "ElapsedTime",
    "ForkServer",
    "Isolation",
    "Limits",
    "StageLines",
    "TaskError",
    "can_inspect",
    "protections",
    "run_supervised",
]
