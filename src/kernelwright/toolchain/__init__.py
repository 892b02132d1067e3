"""Compilers: C++ for the CPU with the system compiler, CUDA C++ with NVRTC (`toolchain.cuda`)."""

from kernelwright.toolchain.cpp import compile_shared

__all__ = ["compile_shared"]
