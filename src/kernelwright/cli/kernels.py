"""kw kernels: the kernel library."""

from __future__ import annotations

from kernelwright import commands
from kernelwright.cli.options import DebugOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.library import KernelLibrary


def kernels(json: JsonOption = False, debug: DebugOption = False) -> int:
    """Which kernels does the library have? Their arguments, sources and recorded measurements.

    Example: kw kernels

    Example: kw sass kernels/rms_norm:backward
    """
    return run_command("kernels", commands.kernels, KernelLibrary, OutputOptions(json, None, debug))
