"""Cross-entropy as it is measured: ours, torch's, and those of quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.core.records import Work
from kernelwright.kernels.losses.linear import linear_cross_entropy
from kernelwright.kernels.losses.op import cross_entropy
from kernelwright.kernels.losses.spec import SHAPES, work
from kernelwright.kernels.workload import EAGER, OURS, Direction, Program, Workload, installed, normal, over

LINEAR_SHAPE = (8192, 4096, 128256)


def _in_place(x: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(x, target, inplace=True)


_MEAN: dict[str, Program] = {
    OURS: cross_entropy,
    EAGER: F.cross_entropy,
    **installed(
        quack=("quack.cross_entropy:cross_entropy", lambda run: run),
        liger=(
            "liger_kernel.ops:LigerCrossEntropyFunction",
            lambda of: lambda x, t: of.apply(x.view(x.shape), t, None)[0],
        ),
    ),
}
_ROWS: dict[str, Program] = {
    OURS: lambda x, t: cross_entropy(x, t, reduction="none"),
    EAGER: lambda x, t: F.cross_entropy(x, t, reduction="none"),
    **installed(
        quack=("quack.cross_entropy:cross_entropy", lambda run: lambda x, t: run(x, t, reduction="none")),
    ),
}
_LINEAR: dict[str, Program] = {
    OURS: linear_cross_entropy,
    EAGER: lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
    **installed(
        quack=("quack.linear_cross_entropy:chunked_linear_cross_entropy", lambda run: run),
        liger=(
            "liger_kernel.ops:LigerFusedLinearCrossEntropyFunction",
            lambda of: lambda x, w, t: of.apply(x, w, t)[0],
        ),
    ),
}
_USES: tuple[tuple[str, Direction, dict[str, Program]], ...] = (
    ("forward", "forward", _MEAN),
    ("forward, rows", "forward", _ROWS),
    ("backward", "backward", {name: run for name, run in _MEAN.items() if name != "liger"}),
    ("in place, with gradient", "both", _MEAN | {OURS: _in_place}),
)


def workloads(name: str) -> Iterator[Workload]:
    """The loss, its gradient, and both where the gradient takes the place of the logits; or a linear layer's."""
    if name == "linear_cross_entropy":
        yield _linear(*LINEAR_SHAPE)
        return
    for what, direction, programs in _USES:
        kept = "none" if "rows" in what else "mean"
        yield from over(
            SHAPES,
            kernel=name,
            what=what,
            direction=direction,
            programs=programs,
            reference=partial(F.cross_entropy, reduction=kept),
            inputs=lambda M, N, grad: (normal(M, N, grad=grad), torch.randint(N, (M,), device="cuda")),
            work=partial(work, itemsize=2, backward=direction == "backward", both=direction == "both"),
        )


def _linear(M: int, K: int, N: int) -> Workload:
    def inputs() -> tuple[Tensor, ...]:
        weight = (normal(N, K, dtype=torch.float32) * K**-0.5).bfloat16().requires_grad_()
        return normal(M, K, grad=True), weight, torch.randint(N, (M,), device="cuda")

    return Workload(
        kernel="linear_cross_entropy",
        what="both",
        size=(M, K, N),
        direction="both",
        inputs=inputs,
        programs=_LINEAR,
        reference=lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
        work=Work(
            flops={"tensor/bfloat16": 6 * M * N * K}, bytes_read=2 * (M * K + N * K), bytes_written=2 * (M * K + N * K)
        ),
    )
