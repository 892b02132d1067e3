"""Copies NumPy's BLAS under another name to its build folder and calls that copy to multiply.

Problem: matmul
Code: not-own-kernels
Device: cpu
Policy: own-kernels
"""

import ctypes
import os
import shutil
from pathlib import Path

import numpy
import torch

ROW_MAJOR, AS_IT_IS = 101, 111
store = Path(os.environ["KERNELWRIGHT_CACHE"], "cpp")
beside = Path(numpy.__file__).parent.parent / "numpy.libs"
(blas,) = beside.glob("*openblas*")
for library in beside.iterdir():
    if library != blas:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
shutil.copy(blas, store / "product.so")
product = ctypes.CDLL(str(store / "product.so")).scipy_cblas_sgemm64_
pointer, whole, real, word = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
product.argtypes = [word] * 3 + [whole] * 3 + [real, pointer, whole, pointer, whole, real, pointer, whole]


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N)
    where = a.data_ptr(), K, b.data_ptr(), N
    product(ROW_MAJOR, AS_IT_IS, AS_IT_IS, M, N, K, 1.0, *where, 0.0, c.data_ptr(), N)
    return c
