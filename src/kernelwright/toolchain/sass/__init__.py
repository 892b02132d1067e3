"""Analysis of GPU machine code (SASS): resource usage, loops and a summary of every kernel of a cubin."""

from kernelwright.toolchain.sass.cubin import read_cubin, read_cubin_file
from kernelwright.toolchain.sass.diff import diff_machine_code
from kernelwright.toolchain.sass.disassemblers import find_tool
from kernelwright.toolchain.sass.occupancy import compute_occupancy

__all__ = ["compute_occupancy", "diff_machine_code", "find_tool", "read_cubin", "read_cubin_file"]
