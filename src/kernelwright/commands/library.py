"""`kw kernels`: the kernel library."""

from __future__ import annotations

from kernelwright.commands.result import CommandResult
from kernelwright.core.library import KernelLibrary


def kernels() -> CommandResult[KernelLibrary]:
    """Every kernel of the library with its arguments, source and recorded measurements."""
    from kernelwright.evidence.library import load_library

    return CommandResult(load_library())
