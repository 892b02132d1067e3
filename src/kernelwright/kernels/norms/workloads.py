"""Benchmark workloads of the norms: ours, torch eager, quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.kernels.norms import reference
from kernelwright.kernels.norms.op import layer_norm, rms_norm
from kernelwright.kernels.norms.spec import SHAPES, work
from kernelwright.kernels.workload import (
    DIRECTIONS,
    EAGER,
    OURS,
    Implementation,
    Workload,
    import_peers,
    make_workloads,
    randn,
)

RMS_EPS, LAYER_EPS = 1e-6, 1e-5
_RMS: dict[str, Implementation] = {
    OURS: lambda x, w: rms_norm(x, w, eps=RMS_EPS),
    EAGER: lambda x, w: F.rms_norm(x, w.shape, w, RMS_EPS),
    **import_peers(
        quack=("quack.rmsnorm:rmsnorm", lambda run: lambda x, w: run(x, w, eps=RMS_EPS)),
        liger=(
            "liger_kernel.ops:LigerRMSNormFunction",
            lambda of: lambda x, w: of.apply(x, w, RMS_EPS, 0.0, "llama", False, None),
        ),
    ),
}


def _eager_add_rms_norm(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    residual_sum = x + r
    return F.rms_norm(residual_sum, w.shape, w, RMS_EPS), residual_sum


_ADD_RMS: dict[str, Implementation] = {
    OURS: lambda x, r, w: rms_norm(x, w, residual=r, eps=RMS_EPS),
    EAGER: _eager_add_rms_norm,
    **import_peers(
        quack=(
            "quack.rmsnorm:rmsnorm",
            lambda run: lambda x, r, w: run(x, w, residual=r, eps=RMS_EPS, prenorm=True),
        ),
        liger=(
            "liger_kernel.ops:LigerFusedAddRMSNormFunction",
            lambda of: lambda x, r, w: of.apply(x, r, w, RMS_EPS, 0.0, "llama", False),
        ),
    ),
}
_cached_float = lru_cache(maxsize=1024)(Tensor.float)


def _quack_layer_norm(forward: Any) -> Implementation:
    """quack's two kernels as one differentiable function; they need FP32 weights, which are converted once and
    cached."""
    backward = import_module("quack.rmsnorm").layernorm_bwd

    class QuackLayerNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Tensor) -> Tensor:
            x, w, b = args
            y, rstd, mean = forward(
                x, _cached_float(w), _cached_float(b), LAYER_EPS, return_rstd=True, return_mean=True
            )
            ctx.save_for_backward(x, w, rstd, mean)
            return y

        @staticmethod
        def backward(ctx: Any, *args: Tensor) -> tuple[Tensor, ...]:
            x, w, rstd, mean = ctx.saved_tensors
            return backward(x, w, args[0], rstd, mean)

    def run(x: Tensor, w: Tensor, b: Tensor) -> Any:
        if torch.is_grad_enabled():
            return QuackLayerNorm.apply(x, w, b)
        return forward(x, _cached_float(w), _cached_float(b), LAYER_EPS)

    return run


_LAYER: dict[str, Implementation] = {
    OURS: lambda x, w, b: layer_norm(x, w, b, eps=LAYER_EPS),
    EAGER: lambda x, w, b: F.layer_norm(x, w.shape, w, b, LAYER_EPS),
    **import_peers(
        quack=("quack.rmsnorm:layernorm_fwd", _quack_layer_norm),
        liger=(
            "liger_kernel.ops:LigerLayerNormFunction",
            lambda of: lambda x, w, b: of.apply(x, w, b, LAYER_EPS),
        ),
    ),
}
_REFERENCES: dict[str, Implementation] = {
    "rms_norm": lambda x, w: reference.norm(x, w, eps=RMS_EPS),
    "rms_norm residual": lambda x, r, w: (reference.norm(x, w, residual=r, eps=RMS_EPS), x + r),
    "layer_norm": lambda x, w, b: reference.norm(x, w, b, eps=LAYER_EPS, centred=True),
}


def workloads(name: str) -> Iterator[Workload]:
    """Forward and backward on every shape; for RMSNorm also with a residual."""
    use_cases = {"layer_norm": [("", _LAYER, 1, 2)], "rms_norm": [("", _RMS, 1, 1), ("residual", _ADD_RMS, 2, 1)]}
    for use_case, implementations, num_rows, num_vectors in use_cases[name]:
        for direction in DIRECTIONS:
            yield from make_workloads(
                SHAPES,
                kernel=name,
                use_case=f"{use_case} {direction}".strip(),
                direction=direction,
                implementations=implementations,
                reference=_REFERENCES[f"{name} {use_case}".strip()],
                make_inputs=partial(_inputs, num_rows, num_vectors),
                work=partial(work, itemsize=2, backward=direction == "backward", residual=bool(use_case)),
            )


def _inputs(num_rows: int, num_vectors: int, M: int, N: int, grad: bool) -> tuple[Tensor, ...]:
    return *(randn(M, N, grad=grad) for _ in range(num_rows)), *(randn(N, grad=grad) for _ in range(num_vectors))
