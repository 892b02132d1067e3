"""CUDA C++ on the CPU: the same source as for the GPU, through g++, to see whether it is right before there is one.

`EmulatedKernel` runs it, `count` counts what it asks of memory, `sanitize` looks for overruns and races. No inline PTX,
and no time that says anything about a GPU.
"""

from kernelwright.toolchain.emulator.counting import Counts, MemoryInstruction, count
from kernelwright.toolchain.emulator.findings import Finding
from kernelwright.toolchain.emulator.run import EmulatedKernel
from kernelwright.toolchain.emulator.sanitized import Sanitizer, sanitize

__all__ = ["Counts", "EmulatedKernel", "Finding", "MemoryInstruction", "Sanitizer", "count", "sanitize"]
