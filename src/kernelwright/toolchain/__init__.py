"""From source to machine code: C++ for the CPU, and in `toolchain.cuda` CUDA C++ through NVRTC."""

from kernelwright.toolchain.cpp import compile_shared

__all__ = ["compile_shared"]
