"""Rotary position embedding operators."""

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
"""Warps of a program, and for tokens whose queries and keys have at least LARGE_TOKEN_BYTES."""
HEADS_PER_PROGRAM = 8
"""Heads per program where tokens are few: fewer pairs than threads, or angles would go through shared memory."""


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
    """Queries and keys rotated by their tokens' angles, computed in FP32.

    Args:
        q: (B, S, H, D), fp16/bf16/fp32; any strides, copied if the last one is not 1.
        k: (B, S, H', D), of q's dtype.
        cos, sin: (S, R / 2) or (B, S, R / 2); the first R <= D columns of a head are rotated, the rest pass through.
            Tables of D columns that repeat, as in Hugging Face models, are accepted. They get no gradient.
        positions: (S,) or (B, S), int64: row of each token in cos and sin, (T, R / 2); not bounds-checked.
        interleaved: elements of a pair are adjacent, as in GPT-J, instead of R / 2 apart, as in GPT-NeoX and Llama.
        heads_first: q is (B, H, S, D), k likewise.
    Returns:
        q and k rotated, same shapes and dtype.
    Raises:
        ShapeError: shapes or dtypes do not match.
        DeviceError: not on a CUDA device.
    Cost: 2 * (q.numel + k.numel) * itemsize bytes of DRAM; memory-bound.
    Source: Su et al. 2021, arXiv:2104.09864.
    """
    if heads_first:
        rotated = rotary_embedding(
            q.transpose(1, 2), k.transpose(1, 2), cos, sin, positions=positions, interleaved=interleaved
        )
        return rotated[0].transpose(1, 2), rotated[1].transpose(1, 2)
    require_tensor("q", q)
    require(q.dim() == 4 and k.dim() == 4, lambda: f"q has {q.dim()} dimensions and k {k.dim()}; both must have 4")
    B, S, _, D = q.shape
    require(q.shape[2] > 0, lambda: "q has no heads")
    require_tensor("k", k, (B, S, k.shape[2], D), (q.dtype,))
    require_tensor("cos", cos)
    require_tensor("sin", sin, cos.shape)
    wants_grad = torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad)
    require(not wants_grad, lambda: "cos and sin get no gradient; detach them")
    if cos.shape[-1] == D:
        unique = slice(0, None, 2) if interleaved else slice(0, D // 2)
        cos, sin = cos[..., unique], sin[..., unique]
    R = 2 * cos.shape[-1]
    require(0 < R <= D, lambda: f"cos has {R // 2} columns, which rotates {R}; heads have {D}")
    if positions is None:
        require(
            cos.shape[:-1] in ((S,), (B, S), (1, S)),
            lambda: f"cos is {tuple(cos.shape)}; its leading dimensions must match q's {B} x {S} tokens",
        )
        cos, sin = cos.expand(B, S, R // 2), sin.expand(B, S, R // 2)
    else:
        require_tensor(
            "positions", positions, (S,) if positions.dim() == 1 else (positions.shape[0], S), (torch.int64,)
        )
        num_sequences = positions.shape[0] if positions.dim() == 2 else 1
        require(num_sequences in (1, B), lambda: f"positions has {num_sequences} sequences, q has {B}")
        require(cos.dim() == 2, lambda: f"cos is {tuple(cos.shape)}; with positions it must be (T, R / 2)")
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
    B, S, heads_q, D = q.shape
    heads_k, tokens = k.shape[2], B * S
    heads_per_program = HEADS_PER_PROGRAM if tokens <= multiprocessors(q.device) else 0
    blocks = -(-heads_q // heads_per_program) + -(-heads_k // heads_per_program) if heads_per_program else 1
    is_large_token = (heads_q + heads_k) * D * q.itemsize >= LARGE_TOKEN_BYTES
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
        num_warps=LARGE_TOKEN_WARPS if is_large_token and not heads_per_program else WARPS,
        HEADS_Q=heads_q,
        HEADS_K=heads_k,
        D=D,
        R=2 * cos.shape[-1],
        INTERLEAVED=interleaved,
        INVERSE=inverse,
        HEADS_PER_PROGRAM=heads_per_program,
    )
    return q_out, k_out


def _with_unit_last_stride(x: Tensor) -> Tensor:
    """x, copied if its last stride is not 1."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _allocate_outputs(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs with the strides of the inputs."""
    return torch.empty_like(_with_unit_last_stride(q)), torch.empty_like(_with_unit_last_stride(k))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, cos, sin, positions, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin, positions)


def _autograd_backward(ctx: Any, dq: Tensor, dk: Tensor) -> tuple[Tensor | None, ...]:
    rotated = _ROTARY(dq, dk, *ctx.saved_tensors, ctx.interleaved, not ctx.inverse)
    return (*rotated, *[None] * 5)


_ROTARY = Operator(
    "rotary(Tensor q, Tensor k, Tensor cos, Tensor sin, Tensor? positions, bool interleaved, bool inverse) "
    "-> (Tensor, Tensor)",
    _rotate,
    lambda q, k, *_: _allocate_outputs(q, k),
    _autograd_backward,
    _setup_context,
)
