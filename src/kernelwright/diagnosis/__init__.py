"""What is a program waiting on, how far is it from the floor, and what should be done next."""

import kernelwright.report  # noqa: F401 - its records print and draw themselves
from kernelwright.diagnosis.script import is_python_command, watch_script
from kernelwright.diagnosis.watch import watch
from kernelwright.diagnosis.why import why, why_files

__all__ = ["is_python_command", "watch", "watch_script", "why", "why_files"]
