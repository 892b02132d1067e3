"""CUDA C++ for the GPU: one source text in, machine code out through NVRTC, and its launch from torch.

Compiling needs no GPU, no toolkit and no torch; `launching` needs all but the toolkit. Headers of this package are
included as `"kw/NAME.cuh"`.
"""

from kernelwright.toolchain.cuda.compiler import Cubin, compile_cubin
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR

__all__ = ["INCLUDE_DIR", "Cubin", "compile_cubin"]
