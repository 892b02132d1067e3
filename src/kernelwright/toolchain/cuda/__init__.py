"""CUDA C++ for the GPU: compilation with NVRTC and launches on torch's stream.

Compiling needs no GPU, no CUDA toolkit and no torch; `cuda.launcher` needs a GPU and torch. Device headers of this
package are included as `"kw/NAME.cuh"`.
"""

from kernelwright.toolchain.cuda.compiler import Cubin, compile_cubin
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR

__all__ = ["INCLUDE_DIR", "Cubin", "compile_cubin"]
