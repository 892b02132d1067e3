"""GEMMs of a linear layer under cross-entropy, one chunk of rows after another in one buffer of logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor


def chunks_of_logits(
    rows: Tensor, weight: Tensor, bias: Tensor | None, sizes: Sequence[int]
) -> Iterator[tuple[slice, Tensor]]:
    """The rows of each chunk and their logits, which the next chunk overwrites.

    Args:
        rows: (M, K).
        weight: (N, K).
        sizes: rows of each chunk.
    """
    buffer = rows.new_empty((max(sizes, default=0), len(weight)))
    for end, size in zip(accumulate(sizes), sizes, strict=True):
        logits = torch.mm(rows[end - size : end], weight.t(), out=buffer[:size])
        yield slice(end - size, end), logits if bias is None else logits.add_(bias)


def allocate_gradients(
    x: Tensor, weight: Tensor, wants_x: bool, wants_weight: bool, wants_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x and the weight in their dtypes, and of the bias in FP32; empty where not wanted."""
    return (
        x.new_empty(x.shape if wants_x else (0,)),
        weight.new_empty(weight.shape if wants_weight else (0,)),
        weight.new_empty(weight.shape[:1] if wants_bias else (0,), dtype=torch.float32),
    )


def accumulate_gradients(
    rows: Tensor, weight: Tensor, chunk: slice, dlogits: Tensor, dx: Tensor, dweight: Tensor, dbias: Tensor
) -> None:
    """Write the gradient of a chunk's rows, and add to those of the weight and the bias; empty ones are skipped.

    The first chunk overwrites what the gradients hold: with beta=0 a GEMM does not read it.
    """
    beta = float(chunk.start > 0)
    if dx.numel():
        torch.mm(dlogits, weight, out=dx.view(rows.shape)[chunk])
    if dweight.numel():
        dweight.addmm_(dlogits.t(), rows[chunk], beta=beta)
    if dbias.numel():
        torch.add(dlogits.sum(0, dtype=torch.float32), dbias if beta else 0.0, out=dbias)


def zero_gradients(dweight: Tensor, dbias: Tensor) -> None:
    """Gradients of the weight and the bias if there are no rows."""
    dweight.zero_()
    dbias.zero_()
