"""Benchmark workloads of cross-entropy: ours, torch eager, quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.core.work import Work
from kernelwright.kernels.losses.linear import linear_cross_entropy
from kernelwright.kernels.losses.op import cross_entropy
from kernelwright.kernels.losses.spec import SHAPES, work
from kernelwright.kernels.workload import (
    EAGER,
    OURS,
    Direction,
    Implementation,
    Workload,
    import_peers,
    make_workloads,
    randn,
)

LINEAR_SHAPE = (8192, 4096, 128256)


def _in_place(x: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(x, target, inplace=True)


_MEAN: dict[str, Implementation] = {
    OURS: cross_entropy,
    EAGER: F.cross_entropy,
    **import_peers(
        quack=("quack.cross_entropy:cross_entropy", lambda run: run),
        liger=(
            "liger_kernel.ops:LigerCrossEntropyFunction",
            lambda of: lambda x, t: of.apply(x.view(x.shape), t, None)[0],
        ),
    ),
}
_ROWS: dict[str, Implementation] = {
    OURS: lambda x, t: cross_entropy(x, t, reduction="none"),
    EAGER: lambda x, t: F.cross_entropy(x, t, reduction="none"),
    **import_peers(
        quack=("quack.cross_entropy:cross_entropy", lambda run: lambda x, t: run(x, t, reduction="none")),
    ),
}
_LINEAR: dict[str, Implementation] = {
    OURS: linear_cross_entropy,
    EAGER: lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
    **import_peers(
        quack=("quack.linear_cross_entropy:chunked_linear_cross_entropy", lambda run: run),
        liger=(
            "liger_kernel.ops:LigerFusedLinearCrossEntropyFunction",
            lambda of: lambda x, w, t: of.apply(x, w, t)[0],
        ),
    ),
}
_CASES: tuple[tuple[str, Direction, dict[str, Implementation]], ...] = (
    ("forward", "forward", _MEAN),
    ("forward, rows", "forward", _ROWS),
    ("backward", "backward", {name: run for name, run in _MEAN.items() if name != "liger"}),
    ("in place, with gradient", "both", _MEAN | {OURS: _in_place}),
)


def workloads(name: str) -> Iterator[Workload]:
    """Loss, gradient, and both with the gradient in place of the logits; or a linear layer with cross-entropy."""
    if name == "linear_cross_entropy":
        yield _linear(*LINEAR_SHAPE)
        return
    for use_case, direction, implementations in _CASES:
        reduction = "none" if "rows" in use_case else "mean"
        yield from make_workloads(
            SHAPES,
            kernel=name,
            use_case=use_case,
            direction=direction,
            implementations=implementations,
            reference=partial(F.cross_entropy, reduction=reduction),
            make_inputs=lambda M, N, grad: (randn(M, N, grad=grad), torch.randint(N, (M,), device="cuda")),
            work=partial(work, itemsize=2, backward=direction == "backward", with_gradient=direction == "both"),
        )


def _linear(M: int, K: int, N: int) -> Workload:
    def inputs() -> tuple[Tensor, ...]:
        weight = (randn(N, K, dtype=torch.float32) * K**-0.5).bfloat16().requires_grad_()
        return randn(M, K, grad=True), weight, torch.randint(N, (M,), device="cuda")

    return Workload(
        kernel="linear_cross_entropy",
        use_case="both",
        size=(M, K, N),
        direction="both",
        make_inputs=inputs,
        implementations=_LINEAR,
        reference=lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
        work=Work(
            flops={"tensor/bfloat16": 6 * M * N * K}, bytes_read=2 * (M * K + N * K), bytes_written=2 * (M * K + N * K)
        ),
    )
