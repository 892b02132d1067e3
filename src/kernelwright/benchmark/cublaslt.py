"""Products by the fastest of cublasLt's heuristics for their shape: what cuBLAS reaches if a caller tunes it.

torch's products use the first heuristic. The library is the one that torch has loaded.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelwright.benchmark.fastest import time_fastest
from kernelwright.core.errors import DeviceError, UsageError

NUM_HEURISTICS = 32
WORKSPACES = (32 * 2**20, 64 * 2**20)
"""Bytes; torch has 32 MiB on Hopper."""
BUDGET_S = 0.1

# Values of enumerations: library_types.h, cublas_api.h, cublasLt.h.
DATA_TYPES = {
    torch.float32: 0,
    torch.float16: 2,
    torch.bfloat16: 14,
    torch.float8_e4m3fn: 28,
    torch.float8_e5m2: 29,
}
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPUTE_32F, OP_N, OP_T = 68, 0, 1
TRANSA, TRANSB, A_SCALE_POINTER, B_SCALE_POINTER, A_SCALE_MODE, B_SCALE_MODE = 3, 4, 17, 18, 31, 32
SCALE_OUTER_VECTOR = 3
PREFERENCE_MAX_WORKSPACE_BYTES = 1


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", c_uint64 * 8),)


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@functools.cache
def load_library() -> Any:
    """The cublasLt that torch has loaded.

    Raises:
        DeviceError: torch has loaded none.
    """
    torch.mm(*(torch.ones(16, 16, device="cuda", dtype=torch.bfloat16) for _ in range(2)))
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcublasLt.so" in line:
            return ctypes.CDLL(line.split(maxsplit=5)[5])
    raise DeviceError("torch has not loaded cublasLt", next="install a CUDA build of torch")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(load_library(), name)(*arguments)
    if status:
        raise RuntimeError(f"{name} returns status {status}")


@functools.cache
def _handle(_device: int) -> c_void_p:
    handle = c_void_p()
    _call("cublasLtCreate", byref(handle))
    return handle


@functools.cache
def _workspace(device: int) -> Tensor:
    return torch.empty(max(WORKSPACES), dtype=torch.uint8, device=f"cuda:{device}")


class LtProduct:
    """Descriptors of (M, K) by (K, N) of one shape, one set of strides and dtypes.

    cublasLt's matrices are column-major: it computes the transposed product.

    Raises:
        UsageError: a matrix is contiguous along neither dimension.
    """

    def __init__(self, a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None) -> None:
        (m, k), n = a.shape, b.shape[1]
        self.shape = m, n
        self.out_dtype = torch.bfloat16 if a.dtype in FP8_DTYPES else a.dtype
        self.device = a.device.index
        self._description = c_void_p()
        _call("cublasLtMatmulDescCreate", byref(self._description), COMPUTE_32F, DATA_TYPES[torch.float32])
        first, first_is_transposed = _column_major(b.T, n, k)
        second, second_is_transposed = _column_major(a.T, k, m)
        self._set(TRANSA, OP_T if first_is_transposed else OP_N)
        self._set(TRANSB, OP_T if second_is_transposed else OP_N)
        for attribute, scale in ((A_SCALE_MODE, scale_b), (B_SCALE_MODE, scale_a)):
            if scale is not None and scale.numel() > 1:
                self._set(attribute, SCALE_OUTER_VECTOR)
        self._set_scales(scale_a, scale_b)
        self._layouts = first, second, _layout(self.out_dtype, n, m, n)
        self._factors = c_float(1.0), c_float(0.0)

    def _set(self, attribute: int, value: int) -> None:
        _call("cublasLtMatmulDescSetAttribute", self._description, attribute, byref(c_int(value)), c_size_t(4))

    def _set_scales(self, scale_a: Tensor | None, scale_b: Tensor | None) -> None:
        for attribute, scale in ((A_SCALE_POINTER, scale_b), (B_SCALE_POINTER, scale_a)):
            if scale is not None:
                address = c_void_p(scale.data_ptr())
                _call("cublasLtMatmulDescSetAttribute", self._description, attribute, byref(address), c_size_t(8))

    def heuristics(self) -> Iterator[Heuristic]:
        """The first heuristics for every size of the workspace, each once."""
        known = set()
        for workspace_bytes in WORKSPACES:
            preference = c_void_p()
            _call("cublasLtMatmulPreferenceCreate", byref(preference))
            limit = c_uint64(workspace_bytes)
            _call(
                "cublasLtMatmulPreferenceSetAttribute",
                preference,
                PREFERENCE_MAX_WORKSPACE_BYTES,
                byref(limit),
                c_size_t(8),
            )
            results, count = (Heuristic * NUM_HEURISTICS)(), c_int()
            first, second, out = self._layouts
            arguments = (_handle(self.device), self._description, first, second, out, out, preference)
            _call("cublasLtMatmulAlgoGetHeuristic", *arguments, NUM_HEURISTICS, results, byref(count))
            _call("cublasLtMatmulPreferenceDestroy", preference)
            for one in results[: count.value]:
                if one.state == 0 and (key := bytes(one.algorithm)) not in known:
                    known.add(key)
                    yield one

    def __call__(
        self, heuristic: Heuristic, a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None
    ) -> Tensor:
        """Multiply on the current stream."""
        out = torch.empty(self.shape, dtype=self.out_dtype, device=a.device)
        self._set_scales(scale_a, scale_b)
        alpha, beta = self._factors
        first, second, result = self._layouts
        target = c_void_p(out.data_ptr())
        _call(
            "cublasLtMatmul", _handle(self.device), self._description,
            byref(alpha), c_void_p(b.data_ptr()), first, c_void_p(a.data_ptr()), second,
            byref(beta), target, result, target, result,
            byref(heuristic.algorithm), c_void_p(_workspace(self.device).data_ptr()),
            c_size_t(heuristic.workspace_bytes), c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip
        return out


def _column_major(matrix: Tensor, rows: int, columns: int) -> tuple[c_void_p, bool]:
    """The layout of a (rows, columns) matrix as it is stored, and whether that is its transpose."""
    if matrix.stride(0) == 1:
        return _layout(matrix.dtype, rows, columns, max(rows, matrix.stride(1))), False
    if matrix.stride(1) == 1:
        return _layout(matrix.dtype, columns, rows, max(columns, matrix.stride(0))), True
    raise UsageError(f"strides {matrix.stride()}: cublasLt needs one of them to be 1")


def _layout(dtype: torch.dtype, rows: int, columns: int, pitch: int) -> c_void_p:
    layout = c_void_p()
    arguments = DATA_TYPES[dtype], c_uint64(rows), c_uint64(columns), c_int64(pitch)
    _call("cublasLtMatrixLayoutCreate", byref(layout), *arguments)
    return layout


class BestHeuristic:
    """A product by the fastest heuristic, which the first call of each shape, strides and dtypes finds by timing."""

    def __init__(self) -> None:
        self._chosen: dict[Any, Callable[..., Tensor]] = {}

    def __call__(self, a: Tensor, b: Tensor, *scales: Tensor) -> Tensor:
        key = a.device.index, *((one.shape, one.stride(), one.dtype) for one in (a, b, *scales))
        if key not in self._chosen:
            self._chosen[key] = choose_fastest(a, b, *scales)
        return self._chosen[key](a, b, *scales)


def choose_fastest(a: Tensor, b: Tensor, *scales: Tensor) -> Callable[..., Tensor]:
    """The product by the fastest heuristic.

    Raises:
        DeviceError: cublasLt has none for these operands.
    """
    product = LtProduct(a, b, *(scales or (None, None)))
    programs = {}
    for heuristic in product.heuristics():
        try:
            product(heuristic, a, b, *scales)
        except RuntimeError:  # some heuristics are refused
            continue
        programs[str(len(programs))] = functools.partial(product, heuristic)
    if not programs:
        raise DeviceError("cublasLt has no algorithm for these operands", next="compare with torch")
    return programs[next(iter(time_fastest(programs, (a, b, *scales), BUDGET_S)))]
