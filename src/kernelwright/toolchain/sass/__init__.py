"""Machine code as records: a cubin's kernels, what they take, their loops, and what that says."""

from kernelwright.toolchain.sass.cubin import read_cubin, read_file
from kernelwright.toolchain.sass.difference import difference
from kernelwright.toolchain.sass.occupancy import occupancy
from kernelwright.toolchain.sass.tools import find_tool

__all__ = ["difference", "find_tool", "occupancy", "read_cubin", "read_file"]
