"""Softmax as it is measured: ours, torch's, and those of quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernelwright.kernels.softmaxes import reference
from kernelwright.kernels.softmaxes.op import log_softmax, softmax
from kernelwright.kernels.softmaxes.spec import SHAPES, work
from kernelwright.kernels.workload import EACH_WAY, EAGER, OURS, Program, Workload, installed, normal, over

_PROGRAMS: dict[str, dict[str, Program]] = {
    "softmax": {
        OURS: softmax,
        EAGER: lambda x: torch.softmax(x, -1),
        **installed(
            quack=("quack.softmax:softmax", lambda run: run),
            liger=("liger_kernel.ops:LigerSoftmaxFunction", lambda of: of.apply),
        ),
    },
    "log_softmax": {OURS: log_softmax, EAGER: lambda x: torch.log_softmax(x, -1)},
}


def workloads(name: str) -> Iterator[Workload]:
    """Forward and backward on every shape."""
    for direction in EACH_WAY:
        yield from over(
            SHAPES,
            kernel=name,
            what=direction,
            direction=direction,
            programs=_PROGRAMS[name],
            reference=lambda x: reference.softmax(x, log=name == "log_softmax"),
            inputs=lambda M, N, grad: (normal(M, N, grad=grad),),
            work=partial(work, itemsize=2, backward=direction == "backward"),
        )
