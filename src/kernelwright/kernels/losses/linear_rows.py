"""Losses of each row of a linear layer under cross-entropy, without storing all logits.

Their gradients need the gradient of each loss, so the backward pass computes the logits of a chunk again and
overwrites them with their gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernelwright.kernels.losses.configs import split_into_chunks
from kernelwright.kernels.losses.launcher import LossParams, write_gradient, write_losses
from kernelwright.kernels.losses.linear_chunks import (
    accumulate_gradients,
    allocate_gradients,
    chunks_of_logits,
    zero_gradients,
)
from kernelwright.kernels.operators import Operator


def linear_losses(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, loss_params: LossParams, wants_grad: bool
) -> Tensor:
    """The loss of each row, of target's shape, in FP32; arguments as `linear_cross_entropy`, which validates them."""
    return _LINEAR_ROWS(x, weight, target, bias, *loss_params, wants_grad)[0]


def _chunked_losses(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    """The losses, and of each chunk of m rows the statistics, (2, m), if wanted."""
    *loss_args, wants_stats = rest
    losses, stats = _allocate_outputs(x, weight, target, bias, *rest)
    rows, targets, row_losses = x.reshape(-1, x.shape[-1]), target.reshape(-1), losses.view(-1)
    sizes = split_into_chunks(len(rows), len(weight), x.itemsize)
    for chunk, logits in chunks_of_logits(rows, weight, bias, sizes):
        lse = _chunk_stats(stats, chunk) if wants_stats else None
        write_losses(logits, targets[chunk], None, LossParams(*loss_args), row_losses[chunk], lse)
    return losses, stats


def _allocate_outputs(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    losses = x.new_empty(target.shape, dtype=torch.float32)
    return losses, losses.new_empty(2 * target.numel() if rest[-1] else 0)


def _chunk_stats(stats: Tensor, chunk: slice) -> Tensor:
    return stats[2 * chunk.start : 2 * chunk.stop].view(2, -1)


def _chunked_backward(
    dlosses: Tensor, x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, stats: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    gradients = allocate_gradients(x, weight, *rest[-3:])
    params = LossParams(*rest[:-3])
    rows, targets, row_dlosses = x.reshape(-1, x.shape[-1]), target.reshape(-1), dlosses.reshape(-1)
    sizes = split_into_chunks(len(rows), len(weight), x.itemsize)
    for chunk, logits in chunks_of_logits(rows, weight, bias, sizes):
        if logits.numel():
            lse = _chunk_stats(stats, chunk)
            write_gradient(row_dlosses[chunk], None, logits, targets[chunk], None, lse, params, logits)
        accumulate_gradients(rows, weight, chunk, logits, *gradients)
    if not sizes:
        zero_gradients(*gradients[1:])
    return gradients


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, target, bias, *ctx.loss_args, _ = inputs
    ctx.save_for_backward(x, weight, target, bias, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _autograd_backward(ctx: Any, dlosses: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if dlosses is None:
        return (None,) * 9
    wants_x, wants_weight, _, wants_bias = ctx.needs_input_grad[:4]
    wanted, bias = (wants_x, wants_weight, wants_bias), ctx.saved_tensors[3]
    dx, dweight, dbias = _LINEAR_ROWS_BACKWARD(dlosses, *ctx.saved_tensors, *ctx.loss_args, *wanted)
    dbias = dbias.to(bias.dtype) if wants_bias else None
    return dx if wants_x else None, dweight if wants_weight else None, None, dbias, *[None] * 5


_LINEAR_ROWS = Operator(
    "linear_cross_entropy_rows(Tensor x, Tensor weight, Tensor target, Tensor? bias, int ignore_index, "
    "float label_smoothing, float z_loss, float softcap, bool wants_stats) -> (Tensor, Tensor)",
    _chunked_losses,
    _allocate_outputs,
    _autograd_backward,
    _setup_context,
)
_LINEAR_ROWS_BACKWARD = Operator(
    "linear_cross_entropy_rows_backward(Tensor dlosses, Tensor x, Tensor weight, Tensor target, Tensor? bias, "
    "Tensor stats, int ignore_index, float label_smoothing, float z_loss, float softcap, bool wants_x, "
    "bool wants_weight, bool wants_bias) -> (Tensor, Tensor, Tensor)",
    _chunked_backward,
    lambda dlosses, x, weight, target, bias, stats, *rest: allocate_gradients(x, weight, *rest[-3:]),
)
