"""Compiles a few lines of C++ in its own folder when it is loaded, and calls them by ctypes.

Problem: gelu
Device: cpu
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = """
#include <cmath>
#include <cstdint>
extern "C" void gelu(const float* x, float* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] * 0.5 * (1 + std::erf(x[i] * 0.70710678118654752));
}
"""
folder = Path(tempfile.mkdtemp())
(folder / "gelu.cpp").write_text(SOURCE)
command = ["g++", "-O2", "-shared", "-fPIC", "gelu.cpp", "-o", "gelu.so"]
subprocess.run(command, cwd=folder, check=True, capture_output=True)
library = ctypes.CDLL(str(folder / "gelu.so"))


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.gelu(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_int64(x.numel()))
    return out
