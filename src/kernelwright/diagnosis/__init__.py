"""Diagnosis of a program: its regime, its distance to the floor, and recommendations."""

import kernelwright.report  # noqa: F401 - attaches the console output of the records
from kernelwright.diagnosis.script import is_python_command, watch_script
from kernelwright.diagnosis.watch import watch
from kernelwright.diagnosis.why import why, why_files

__all__ = ["is_python_command", "watch", "watch_script", "why", "why_files"]
