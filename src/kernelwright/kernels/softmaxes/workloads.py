"""Benchmark workloads of softmax: ours, torch eager, quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernelwright.kernels.softmaxes import reference
from kernelwright.kernels.softmaxes.op import log_softmax, softmax
from kernelwright.kernels.softmaxes.spec import SHAPES, work
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

_IMPLEMENTATIONS: dict[str, dict[str, Implementation]] = {
    "softmax": {
        OURS: softmax,
        EAGER: lambda x: torch.softmax(x, -1),
        **import_peers(
            quack=("quack.softmax:softmax", lambda run: run),
            liger=("liger_kernel.ops:LigerSoftmaxFunction", lambda of: of.apply),
        ),
    },
    "log_softmax": {OURS: log_softmax, EAGER: lambda x: torch.log_softmax(x, -1)},
}


def workloads(name: str) -> Iterator[Workload]:
    """Forward and backward on every shape."""
    for direction in DIRECTIONS:
        yield from make_workloads(
            SHAPES,
            kernel=name,
            use_case=direction,
            direction=direction,
            implementations=_IMPLEMENTATIONS[name],
            reference=lambda x: reference.softmax(x, log=name == "log_softmax"),
            make_inputs=lambda M, N, grad: (randn(M, N, grad=grad),),
            work=partial(work, itemsize=2, backward=direction == "backward"),
        )
