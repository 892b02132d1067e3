"""Cross-entropy of a linear layer that never stores all logits: chunks of rows, each with its gradient.

Idea: the loss and the gradient of a chunk's logits do not depend on other rows, so the forward GEMM, the in-place
loss and both GEMMs of the gradient run one chunk after another in one buffer. The GEMMs are cuBLAS's; the target
gradients, which rounding per chunk would hurt most, are added at the end (linear_kernel.py).

Source: Wijmans et al. 2024, arXiv:2411.09009, chunked by rows as Hsu et al. 2024, arXiv:2410.10989.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from kernelwright.core.errors import UsageError
from kernelwright.kernels.losses.configs import TARGET_GRAD_BLOCK, TARGET_GRAD_WARPS, split_into_chunks
from kernelwright.kernels.losses.launcher import (
    LossParams,
    scale_in_place,
    write_losses,
    write_losses_and_gradient,
    write_total,
)
from kernelwright.kernels.losses.linear_chunks import (
    accumulate_gradients,
    allocate_gradients,
    chunks_of_logits,
    zero_gradients,
)
from kernelwright.kernels.losses.linear_kernel import add_target_grad_to_dweight, add_target_grad_to_dx
from kernelwright.kernels.losses.linear_rows import linear_losses
from kernelwright.kernels.operators import (
    Operator,
    is_plain_eager,
    is_plain_tensor,
    raise_if_forward_mode,
    require,
    require_tensor,
)
from kernelwright.kernels.rows.launcher import as_rows, launch_programs

__all__ = ["linear_cross_entropy"]


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Literal["none", "mean", "sum"] = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """`cross_entropy(linear(x, weight, bias), target)` without storing all logits.

    Args:
        x: (..., K), fp16/bf16/fp32.
        weight: (N, K), of x's dtype.
        target: (...), int64.
        bias: (N,).
        ignore_index, label_smoothing, z_loss, softcap: as in `cross_entropy`.
        reduction: mean and sum return a scalar, whose gradients are computed with it; none returns (...), and its
            backward pass computes the logits again.
    Returns:
        FP32. The weight gradient is accumulated in the weight's dtype, rounded once per chunk of rows; for mean and
        sum without the targets' part of it, which is accumulated in FP32 and added last.
    Raises:
        ShapeError: shapes or dtypes do not match.
        DeviceError: not on a CUDA device.
    Cost: 6 * M * N * K FLOPs with gradients (8 with reduction none), 2 without; a logits buffer of at most
        `configs.LOGITS_BUFFER_BYTES`; compute-bound.
    """
    require_tensor("x", x)
    require(
        x.dim() > 0 and weight.dim() == 2, lambda: f"x has {x.dim()} dimensions, weight {weight.dim()}; weight needs 2"
    )
    require_tensor("weight", weight, (weight.shape[0], x.shape[-1]), (x.dtype,))
    require_tensor("target", target, x.shape[:-1], (torch.int64,))
    require_tensor("bias", bias, weight.shape[:1])
    require(reduction in ("none", "mean", "sum"), lambda: f"reduction is {reduction!r}; it must be none, mean or sum")
    if not torch.compiler.is_compiling():
        raise_if_forward_mode()
    grad_enabled = torch.is_grad_enabled()
    wants_grad = [grad_enabled and tensor is not None and tensor.requires_grad for tensor in (x, weight, bias)]
    params = LossParams(ignore_index, label_smoothing, z_loss, softcap)
    if reduction == "none":
        return linear_losses(x, weight, target, bias, params, any(wants_grad))
    mean = reduction == "mean"
    return _LINEAR(x, weight, target, bias, *params, mean, *wants_grad)[0]


def _chunked_loss(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *loss_args, mean = rest[:-3]
    params, wants_any = LossParams(*loss_args), any(rest[-3:])
    results = loss, *gradients = _allocate_outputs(x, weight, target, bias, *rest)
    rows, targets = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    losses, scale = loss.new_empty(targets.shape), loss.new_empty(())
    if wants_any:
        write_total(None, targets, None, params, mean, None, scale)
    sizes = split_into_chunks(len(rows), len(weight), x.itemsize)
    target_grads = loss.new_empty(targets.shape) if wants_any and len(sizes) > 1 else None
    for chunk, logits in chunks_of_logits(rows, weight, bias, sizes):
        if wants_any:
            target_grad = None if target_grads is None else target_grads[chunk]
            write_losses_and_gradient(logits, targets[chunk], None, params, losses[chunk], scale, target_grad)
            accumulate_gradients(rows, weight, chunk, logits, *gradients)
        else:
            write_losses(logits, targets[chunk], None, params, losses[chunk])
    if not sizes:
        zero_gradients(*gradients[1:])
    if target_grads is not None:
        _add_target_gradients(rows, weight, targets, target_grads, params.ignore_index, *gradients)
    write_total(losses, targets, None, params, mean, loss, None)
    return results


def _add_target_gradients(
    rows: Tensor, weight: Tensor, targets: Tensor, target_grad: Tensor, ignore_index: int, *gradients: Tensor
) -> None:
    """Add the contribution of the target gradients to the gradients of the rows, the weight and the bias; empty ones
    are skipped."""
    dx, dweight, dbias = (one if one.numel() else None for one in gradients)
    M, (N, K) = len(rows), weight.shape
    num_blocks = max(1, -(-K // TARGET_GRAD_BLOCK))
    constants = {"num_warps": TARGET_GRAD_WARPS, "K": K, "NUM_BLOCKS": num_blocks, "BLOCK": TARGET_GRAD_BLOCK}
    if dx is not None:
        source = as_rows(weight, max_leading_dims=1)
        arguments = dx, source.tensor, source.stride_args[0], target_grad, targets.contiguous(), N, ignore_index
        launch_programs(add_target_grad_to_dx, M * num_blocks, rows.device, arguments, **constants)
    if dweight is not None or dbias is not None:
        sorted_targets, order = targets.sort(stable=True)
        source = as_rows(rows, max_leading_dims=1)
        arguments = (
            dweight,
            dbias,
            source.tensor,
            source.stride_args[0],
            target_grad,
            sorted_targets,
            order,
            M,
            N,
            ignore_index,
        )
        launch_programs(add_target_grad_to_dweight, M * num_blocks, rows.device, arguments, **constants)


def _allocate_outputs(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, and the gradients; empty where not wanted."""
    return x.new_empty((), dtype=torch.float32), *allocate_gradients(x, weight, *rest[-3:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.bias_dtype = None if inputs[3] is None else inputs[3].dtype
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _autograd_backward(ctx: Any, dloss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if dloss is None:
        return (None,) * 12
    if torch.is_grad_enabled():  # the gradients were computed with the loss, outside the graph
        raise UsageError("linear_cross_entropy has no second derivative", next="use linear and cross_entropy of torch")
    # scale in place if backward() cannot run again: a copy of the weight gradient is a gigabyte
    keep_graph = torch._C._autograd._get_current_graph_task_keep_graph()  # pyright: ignore
    can_scale_in_place = is_plain_eager() and is_plain_tensor(dloss, grad_enabled=False) and not keep_graph
    wants_x, wants_weight, _, wants_bias = ctx.needs_input_grad[:4]
    wanted = zip(ctx.saved_tensors, (wants_x, wants_weight, wants_bias), strict=True)
    dx, dweight, dbias = (
        (scale_in_place(one, dloss) if can_scale_in_place else one * dloss) if is_wanted else None
        for one, is_wanted in wanted
    )
    return dx, dweight, None, None if dbias is None else dbias.to(ctx.bias_dtype), *[None] * 8


_LINEAR = Operator(
    "linear_cross_entropy(Tensor x, Tensor weight, Tensor target, Tensor? bias, int ignore_index, "
    "float label_smoothing, float z_loss, float softcap, bool mean, bool wants_x, bool wants_weight, bool wants_bias) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _chunked_loss,
    _allocate_outputs,
    _autograd_backward,
    _setup_context,
)
