"""Compiles its matrix product in its scratch folder and does its own work there.

Problem: matmul
Device: cpu
Policy: own-kernels
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = """
#include <cstdint>
extern "C" void product(const float* a, const float* b, float* c, int64_t M, int64_t K, int64_t N) {
    for (int64_t i = 0; i < M; ++i) {
        float* row = c + i * N;
        for (int64_t j = 0; j < N; ++j) row[j] = 0;
        for (int64_t k = 0; k < K; ++k)
            for (int64_t j = 0; j < N; ++j) row[j] += a[i * K + k] * b[k * N + j];
    }
}
"""
folder = Path(tempfile.mkdtemp())
(folder / "product.cpp").write_text(SOURCE)
command = ["g++", "-O2", "-shared", "-fPIC", "product.cpp", "-o", "product.so"]
subprocess.run(command, cwd=folder, check=True, capture_output=True)
product = ctypes.CDLL(str(folder / "product.so")).product
product.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    c = torch.empty(len(a), b.shape[1])
    product(a.data_ptr(), b.data_ptr(), c.data_ptr(), *a.shape, b.shape[1])
    return c
