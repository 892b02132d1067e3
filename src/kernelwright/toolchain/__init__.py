"""From source to machine code. So far C++ for the CPU."""

from kernelwright.toolchain.cpp import compile_shared

__all__ = ["compile_shared"]
