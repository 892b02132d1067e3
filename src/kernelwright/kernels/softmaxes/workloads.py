"""Softmax as it is measured: ours, torch's, and those of quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernelwright.kernels.softmaxes import reference
from kernelwright.kernels.softmaxes.op import log_softmax, softmax
from kernelwright.kernels.softmaxes.spec import SHAPES, work
from kernelwright.kernels.workload import EAGER, OURS, Program, Workload, installed, normal

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
    for direction in ("forward", "backward"):
        for M, N in SHAPES:
            back = direction == "backward"
            yield Workload(
                kernel=name,
                what=direction,
                size=(M, N),
                direction=direction,
                inputs=lambda M=M, N=N, back=back: (normal(M, N, grad=back),),
                programs=_PROGRAMS[name],
                reference=lambda x: reference.softmax(x, log=name == "log_softmax"),
                work=work(M, N, 2, backward=back),
            )
