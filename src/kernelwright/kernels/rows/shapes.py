"""Where operators over rows are measured, and with what they compile where no GPU is."""

from __future__ import annotations

from kernelwright.kernels.kernel_spec import ParamMap

SHAPES = (
    (16384, 4096), (8192, 8192), (131072, 128), (32768, 1024), (4096, 16384), (8192, 65536), (4096, 131072),
    (4096, 2560), (2048, 5120), (1, 4096), (64, 128256), (7, 13), (100003, 33),
)  # fmt: skip
"""(M, N): those at which the peers' figures were taken, then models' own, short, tiny and odd ones."""

TILE_PARAMS: ParamMap = {
    "N": 4096,
    "BLOCK_M": 1,
    "BLOCK_N": 4096,
    "NUM_SPLITS": 1,
    "RELOAD": False,
    "PHASE": 0,
    "M": "i32",
}
"""A row that is one tile."""


def row_params(name: str) -> ParamMap:
    """A tensor of bfloat16 whose rows lie at one stride."""
    return {f"{name}_ptr": "*bf16", f"{name}_inner_size": 1, f"stride_{name}_outer": "i32", f"stride_{name}_inner": 0}
