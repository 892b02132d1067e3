"""CUDA C++ on the CPU: compile an unchanged CUDA source with the host compiler to test it without a GPU.

`EmulatedKernel` runs a kernel, `count_accesses` counts its memory accesses, `sanitize` finds out-of-bounds accesses,
data races and deadlocks. Of PTX, the wrappers of `kw/ptx` with a version in `include` are supported, TMA, clusters and
wgmma among them; inline PTX is not. Timings do not predict those of a GPU.
"""

from kernelwright.toolchain.emulator.access_counter import Counts, MemoryInstruction, count_accesses
from kernelwright.toolchain.emulator.launcher import EmulatedKernel
from kernelwright.toolchain.emulator.sanitizer import Sanitizer, sanitize
from kernelwright.toolchain.emulator.sanitizer_report import Finding
from kernelwright.toolchain.emulator.struct_launch import EmulatedStructLaunch, EmulatedStructParameter

__all__ = [
    "Counts",
    "EmulatedKernel",
    "EmulatedStructLaunch",
    "EmulatedStructParameter",
    "Finding",
    "MemoryInstruction",
    "Sanitizer",
    "count_accesses",
    "sanitize",
]
