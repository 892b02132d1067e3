"""Rotary position embedding for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernelwright.kernels.launch_cache import cached_launch
from kernelwright.kernels.operators import Operator, require, require_tensor
from kernelwright.kernels.rotary.kernel import rotary
from kernelwright.kernels.rows.launcher import launch_programs, multiprocessors

__all__ = ["rotary_embedding"]

WARPS, LARGE_TOKEN_WARPS, LARGE_TOKEN_BYTES = 4, 8, 2**14
"""Of a token's program, and of one whose queries and keys are so many bytes."""
HEADS_PER_PROGRAM = 8
"""Of a program where tokens are few, fewer pairs of a head than threads, or angles would go through shared memory."""


@cached_launch
def rotary_embedding(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    positions: Tensor | None = None,
    interleaved: bool = False,
    heads_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """Queries and keys rotated by their tokens' angles, in FP32 until they are written.

    Args:
        q: (B, S, H, D), fp16/bf16/fp32; read as it lies where heads are dense.
        k: (B, S, H', D) of q's dtype.
        cos, sin: (S, R / 2), or (B, S, R / 2), R <= D: how much of a head is rotated; the rest passes through. Of D
            columns that repeat, as Hugging Face's models have them, each is read once. They get no gradient.
        positions: (S,) or (B, S) of int64: the rows of a table cos, sin (T, R / 2) for the tokens; not checked.
        interleaved: pairs are neighbours, as in GPT-J, instead of R / 2 apart, as in GPT-NeoX and Llama.
        heads_first: q is (B, H, S, D), k likewise.
    Returns:
        q and k rotated, in their shapes and dtype.
    Raises:
        ShapeError: shapes or dtypes that do not go together. DeviceError: not on a CUDA device.
    Cost: 2 * (q.numel + k.numel) * itemsize bytes of DRAM; memory-bound.
    Source: Su et al. 2021, arXiv:2104.09864.
    """
    if heads_first:
        turned = rotary_embedding(
            q.transpose(1, 2), k.transpose(1, 2), cos, sin, positions=positions, interleaved=interleaved
        )
        return turned[0].transpose(1, 2), turned[1].transpose(1, 2)
    require_tensor("q", q)
    require(q.dim() == 4 and k.dim() == 4, lambda: f"q has {q.dim()} dimensions and k {k.dim()}; both need 4")
    B, S, _, D = q.shape
    require(q.shape[2] > 0, lambda: "q has no head")
    require_tensor("k", k, (B, S, k.shape[2], D), (q.dtype,))
    require_tensor("cos", cos)
    require_tensor("sin", sin, cos.shape)
    asked = torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad)
    require(not asked, lambda: "cos and sin get no gradient; detach them")
    if cos.shape[-1] == D:
        once = slice(0, None, 2) if interleaved else slice(0, D // 2)
        cos, sin = cos[..., once], sin[..., once]
    R = 2 * cos.shape[-1]
    require(0 < R <= D, lambda: f"{R} columns are rotated of heads of {D}")
    if positions is None:
        require(cos.shape[:-1] in ((S,), (B, S), (1, S)), lambda: f"cos is {tuple(cos.shape)}; q has {B} x {S} tokens")
        cos, sin = cos.expand(B, S, R // 2), sin.expand(B, S, R // 2)
    else:
        require_tensor(
            "positions", positions, (S,) if positions.dim() == 1 else (positions.shape[0], S), (torch.int64,)
        )
        sequences = positions.shape[0] if positions.dim() == 2 else 1
        require(sequences in (1, B), lambda: f"positions are for {sequences} sequences, q has {B}")
        require(cos.dim() == 2, lambda: f"cos is {tuple(cos.shape)}; with positions it is a table of two dimensions")
        positions = positions.expand(B, S)
    return _ROTARY(q, k, cos, sin, positions, interleaved, False)


@cached_launch
def _rotate(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None, interleaved: bool, inverse: bool
) -> tuple[Tensor, Tensor]:
    q, k, cos, sin = map(_with_unit_last_stride, (q, k, cos, sin))
    sin = sin if sin.stride() == cos.stride() else sin.contiguous()
    cos = cos if sin.stride() == cos.stride() else cos.contiguous()
    q_out, k_out = _allocate_outputs(q, k)
    B, S, heads, D = q.shape
    heads_k, tokens = k.shape[2], B * S
    each = HEADS_PER_PROGRAM if tokens <= multiprocessors(q.device) else 0
    blocks = -(-heads // each) + -(-heads_k // each) if each else 1
    many = (heads + heads_k) * D * q.itemsize >= LARGE_TOKEN_BYTES
    strides = [one.stride()[:3] for one in (q, k, q_out, k_out)]
    angle_strides = (0, cos.stride(0)) if positions is not None else cos.stride()[:2]
    launch_programs(
        rotary,
        blocks * tokens,
        q.device,
        (
            *(q, k, cos, sin, positions, q_out, k_out, S),
            *(stride for tensor in strides for stride in tensor),
            *angle_strides,
            *((0, 0) if positions is None else positions.stride()),
        ),
        num_warps=LARGE_TOKEN_WARPS if many and not each else WARPS,
        HEADS_Q=heads,
        HEADS_K=heads_k,
        D=D,
        R=2 * cos.shape[-1],
        INTERLEAVED=interleaved,
        INVERSE=inverse,
        HEADS_PER_PROGRAM=each,
    )
    return q_out, k_out


def _with_unit_last_stride(x: Tensor) -> Tensor:
    """The same, its last dimension one element after another."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _allocate_outputs(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Heads that lie as those given do."""
    return torch.empty_like(_with_unit_last_stride(q)), torch.empty_like(_with_unit_last_stride(k))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, cos, sin, positions, ctx.interleaved, ctx.back = inputs
    ctx.save_for_backward(cos, sin, positions)


def _autograd_backward(ctx: Any, dq: Tensor, dk: Tensor) -> tuple[Tensor | None, ...]:
    turned = _ROTARY(dq, dk, *ctx.saved_tensors, ctx.interleaved, not ctx.back)
    return (*turned, *[None] * 5)


_ROTARY = Operator(
    "rotary(Tensor q, Tensor k, Tensor cos, Tensor sin, Tensor? positions, bool interleaved, bool back) "
    "-> (Tensor, Tensor)",
    _rotate,
    lambda q, k, *_: _allocate_outputs(q, k),
    _autograd_backward,
    _setup_context,
)
