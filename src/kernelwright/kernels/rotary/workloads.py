"""Benchmark workloads of rotary embedding: ours, Hugging Face's formula, quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from kernelwright.kernels.rotary import reference
from kernelwright.kernels.rotary.op import rotary_embedding
from kernelwright.kernels.rotary.spec import SHAPES, work
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


def _eager_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    x1, x2 = x.chunk(2, -1)
    cos, sin = (torch.cat((angle, angle), -1)[:, None] for angle in (cos, sin))
    return x * cos + torch.cat((-x2, x1), -1) * sin


def _run_liger(run: Implementation, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """Liger's kernel, which takes heads before tokens and works in place; inputs that need a gradient are copied."""
    if q.requires_grad:
        q, k = q.clone(), k.clone()
    rotated = run(q.transpose(1, 2), k.transpose(1, 2), cos, sin, None, 1, q.shape[-1])
    return tuple(one.transpose(1, 2) for one in rotated)


_IMPLEMENTATIONS: dict[str, Implementation] = {
    OURS: rotary_embedding,
    EAGER: lambda q, k, cos, sin: (_eager_rotary(q, cos, sin), _eager_rotary(k, cos, sin)),
    **import_peers(
        quack=(
            "quack.rotary:apply_rotary_emb",
            lambda run: lambda q, k, cos, sin: (run(q, cos, sin), run(k, cos, sin)),
        ),
        liger=("liger_kernel.ops:LigerRopeFunction", lambda of: partial(_run_liger, of.apply)),
    ),
}


def workloads(name: str) -> Iterator[Workload]:
    """Forward and backward on every shape."""
    for direction in DIRECTIONS:
        yield from make_workloads(
            SHAPES,
            kernel=name,
            use_case=direction,
            direction=direction,
            implementations=_IMPLEMENTATIONS,
            reference=lambda q, k, cos, sin: tuple(reference.rotary_embedding(x, cos, sin) for x in (q, k)),
            make_inputs=_inputs,
            work=partial(work, itemsize=2),
        )


def _inputs(B: int, S: int, heads_q: int, heads_k: int, D: int, grad: bool) -> tuple[Tensor, ...]:
    return *(randn(B, S, heads, D, grad=grad) for heads in (heads_q, heads_k)), *_angles(S, D)


def _angles(S: int, D: int) -> tuple[Tensor, Tensor]:
    """cos and sin, (S, D / 2), rounded to bfloat16 as in models."""
    frequencies = 10000.0 ** (-torch.arange(0, D, 2, device="cuda") / D)
    angles = torch.arange(S, device="cuda")[:, None] * frequencies
    return angles.cos().bfloat16(), angles.sin().bfloat16()
