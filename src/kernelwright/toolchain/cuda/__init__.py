"""CUDA C++ for the GPU: one source text in, machine code out through NVRTC, and its launch from torch.

Compiling needs no GPU, no toolkit and no torch; `launching` needs all but the toolkit. Headers of this package are
included as `"kw/NAME.cuh"`.
"""

from kernelwright.toolchain.cuda.compiling import Cubin, compile_cubin
from kernelwright.toolchain.cuda.headers import INCLUDE

__all__ = ["INCLUDE", "Cubin", "compile_cubin"]
