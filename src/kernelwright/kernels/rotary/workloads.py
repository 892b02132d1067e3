"""Rotary embedding as it is measured: ours, Hugging Face's formula, and those of quack and Liger."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernelwright.kernels.rotary import reference
from kernelwright.kernels.rotary.op import rotary_embedding
from kernelwright.kernels.rotary.spec import SHAPES, work
from kernelwright.kernels.workload import EAGER, OURS, Program, Workload, installed, normal


def _formula(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    cos, sin = (torch.cat((angle, angle), -1)[:, None] for angle in (cos, sin))
    return x * cos + torch.cat((-other, one), -1) * sin


_PROGRAMS: dict[str, Program] = {
    OURS: rotary_embedding,
    EAGER: lambda q, k, cos, sin: (_formula(q, cos, sin), _formula(k, cos, sin)),
    **installed(
        quack=(
            "quack.rotary:apply_rotary_emb",
            lambda run: lambda q, k, cos, sin: (run(q, cos, sin), run(k, cos, sin)),
        ),
    ),
}


def workloads(name: str) -> Iterator[Workload]:
    """Forward and backward on every shape."""
    for direction in ("forward", "backward"):
        for B, S, heads_q, heads_k, D in SHAPES:
            yield Workload(
                kernel=name,
                what=direction,
                size=(B, S, heads_q, heads_k, D),
                direction=direction,
                inputs=lambda B=B, S=S, heads=(heads_q, heads_k), D=D, back=direction == "backward": (
                    *(normal(B, S, H, D, grad=back) for H in heads),
                    *_angles(S, D),
                ),
                programs=_PROGRAMS,
                reference=lambda q, k, cos, sin: tuple(reference.rotary_embedding(x, cos, sin) for x in (q, k)),
                work=work(B, S, heads_q, heads_k, D, 2),
            )


def _angles(S: int, D: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (S, D / 2), rounded as a model keeps them."""
    frequencies = 10000.0 ** (-torch.arange(0, D, 2, device="cuda") / D)
    angles = torch.arange(S, device="cuda")[:, None] * frequencies
    return angles.cos().bfloat16(), angles.sin().bfloat16()
