"""Benchmark workloads of the activations: ours, torch eager and Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional as F

from kernelwright.kernels.activations import reference
from kernelwright.kernels.activations.op import dropout_add, geglu, gelu, relu_squared, swiglu
from kernelwright.kernels.activations.spec import SHAPES, work
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

P, SEED = 0.1, 7


def _clone_inputs(apply: Implementation) -> Implementation:
    """Copy the inputs of a kernel whose backward pass overwrites them."""
    return lambda *inputs: apply(*((one.clone() if torch.is_grad_enabled() else one) for one in inputs))


_IMPLEMENTATIONS: dict[str, dict[str, Implementation]] = {
    "swiglu": {
        OURS: swiglu,
        EAGER: lambda gate, up: F.silu(gate) * up,
        **import_peers(liger=("liger_kernel.ops:LigerSiLUMulFunction", lambda of: _clone_inputs(of.apply))),
    },
    "geglu": {
        OURS: geglu,
        EAGER: lambda gate, up: F.gelu(gate, approximate="tanh") * up,
        **import_peers(liger=("liger_kernel.ops:LigerGELUMulFunction", lambda of: _clone_inputs(of.apply))),
    },
    "gelu": {OURS: gelu, EAGER: F.gelu},
    "relu_squared": {
        OURS: relu_squared,
        EAGER: lambda x: torch.relu(x).square(),
        **import_peers(liger=("liger_kernel.ops:LigerReLUSquaredFunction", lambda of: of.apply)),
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
    for direction in DIRECTIONS:
        yield from make_workloads(
            SHAPES,
            kernel=name,
            use_case=direction,
            direction=direction,
            implementations=_IMPLEMENTATIONS[name],
            reference=None if residual else lambda *inputs: reference.activation(*inputs, kind=_KINDS[name]),
            make_inputs=lambda M, N, grad: tuple(randn(M, N, grad=grad) for _ in range(1 + gated + residual)),
            work=partial(work, itemsize=2, gated=gated, residual=residual, backward=direction == "backward"),
        )
