"""CUDA C++ on the CPU: the same source as for the GPU, through g++, to see whether it is right before there is one.

`EmulatedKernel` runs it, `count` counts what it asks of memory, `sanitize` looks for overruns and races. No inline PTX,
and no time that says anything about a GPU.
"""

from kernelwright.toolchain.emulator.access_counter import Counts, MemoryInstruction, count_accesses
from kernelwright.toolchain.emulator.launcher import EmulatedKernel
from kernelwright.toolchain.emulator.sanitizer import Sanitizer, sanitize
from kernelwright.toolchain.emulator.sanitizer_report import Finding

__all__ = ["Counts", "EmulatedKernel", "Finding", "MemoryInstruction", "Sanitizer", "count_accesses", "sanitize"]
