"""Activations as they are measured: ours, torch's, and those of Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional as F

from kernelwright.kernels.activations import reference
from kernelwright.kernels.activations.op import dropout_add, geglu, gelu, relu_squared, swiglu
from kernelwright.kernels.activations.spec import SHAPES, work
from kernelwright.kernels.workload import EACH_WAY, EAGER, OURS, Program, Workload, installed, normal, over

P, SEED = 0.1, 7


def _of_copies(apply: Program) -> Program:
    """A program whose gradients overwrite what it was given, which others are given too."""
    return lambda *given: apply(*((one.clone() if torch.is_grad_enabled() else one) for one in given))


_PROGRAMS: dict[str, dict[str, Program]] = {
    "swiglu": {
        OURS: swiglu,
        EAGER: lambda gate, up: F.silu(gate) * up,
        **installed(liger=("liger_kernel.ops:LigerSiLUMulFunction", lambda of: _of_copies(of.apply))),
    },
    "geglu": {
        OURS: geglu,
        EAGER: lambda gate, up: F.gelu(gate, approximate="tanh") * up,
        **installed(liger=("liger_kernel.ops:LigerGELUMulFunction", lambda of: _of_copies(of.apply))),
    },
    "gelu": {OURS: gelu, EAGER: F.gelu},
    "relu_squared": {
        OURS: relu_squared,
        EAGER: lambda x: torch.relu(x).square(),
        **installed(liger=("liger_kernel.ops:LigerReLUSquaredFunction", lambda of: of.apply)),
    },
    "dropout_add": {
        OURS: lambda x, residual: dropout_add(x, residual, P, seed=SEED),
        EAGER: lambda x, residual: residual + F.dropout(x, P),
    },
}
_KINDS = {"swiglu": "silu", "geglu": "gelu_tanh", "gelu": "gelu", "relu_squared": "relu_squared"}


def workloads(name: str) -> Iterator[Workload]:
    """Forward and backward on every shape."""
    gated, residual = name in ("swiglu", "geglu"), name == "dropout_add"
    for direction in EACH_WAY:
        yield from over(
            SHAPES,
            kernel=name,
            what=direction,
            direction=direction,
            programs=_PROGRAMS[name],
            reference=None if residual else lambda *given: reference.activation(*given, kind=_KINDS[name]),
            inputs=lambda M, N, grad: tuple(normal(M, N, grad=grad) for _ in range(1 + gated + residual)),
            work=partial(work, itemsize=2, gated=gated, residual=residual, backward=direction == "backward"),
        )
