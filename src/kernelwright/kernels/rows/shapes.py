"""Benchmark shapes of the row kernels and their parameters for offline compilation."""

from __future__ import annotations

from kernelwright.kernels.kernel_spec import ParamMap

SHAPES = (
    (16384, 4096), (8192, 8192), (131072, 128), (32768, 1024), (4096, 16384), (8192, 65536), (4096, 131072),
    (4096, 2560), (2048, 5120), (1, 4096), (64, 128256), (7, 13), (100003, 33),
)  # fmt: skip
"""(M, N): the shapes for which the baselines publish numbers, then shapes of models, short, tiny and odd ones."""

TILE_PARAMS: ParamMap = {
    "N": 4096,
    "BLOCK_M": 1,
    "BLOCK_N": 4096,
    "NUM_SPLITS": 1,
    "RELOAD": False,
    "PHASE": 0,
    "M": "i32",
}
"""Parameters of a row that is one tile."""


def row_params(name: str) -> ParamMap:
    """Parameters of a bfloat16 tensor with uniform row stride."""
    return {f"{name}_ptr": "*bf16", f"{name}_inner_size": 1, f"stride_{name}_outer": "i32", f"stride_{name}_inner": 0}
