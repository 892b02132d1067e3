"""kw kernels: what the library holds."""

from __future__ import annotations

from kernelwright.cli.options import DebugOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.library import KernelLibrary


def kernels(json: JsonOption = False, debug: DebugOption = False) -> int:
    """What does the library hold? Every kernel with what it takes, where it comes from, and the evidence behind it.

    Example: kw kernels

    Example: kw sass kernels/rms_norm:backward
    """

    def call() -> KernelLibrary:
        from kernelwright.evidence.library import load_library

        return load_library()

    return run_command("kernels", call, KernelLibrary, OutputOptions(json, None, debug))
