"""What stands around the matrix products of attention: scale, mask, bias, softmax, norms and rotations of heads.

Without its products attention waits on memory: scores of (B, H, S, S) are read and written once by every operator.
`GPU_SCALE` is the `scale` with which each one's inputs fill a GPU; it grows the batch.
"""

import torch
from torch import Tensor

GPU_SCALE = {
    "causal_softmax": 16,
    "alibi_softmax": 16,
    "padded_softmax": 16,
    "soft_capped_softmax": 16,
    "relative_bias_softmax": 16,
    "query_key_norm": 16,
    "rotary_embedding": 16,
    "merge_heads_gated": 16,
}


def causal_softmax(scores: Tensor) -> Tensor:
    """scores: (B, H, S, S) -> the same shape: scaled, the future masked, rows that sum to one."""
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax((scores * 0.125).masked_fill(future, float("-inf")), dim=-1)


def causal_softmax_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2 * scale, 4, 512, 512) * 4]


def alibi_softmax(scores: Tensor, slopes: Tensor) -> Tensor:
    """scores: (B, H, S, S), slopes: (H,) -> the same shape as scores, with a bias that falls with the distance."""
    position = torch.arange(scores.shape[-1], device=scores.device)
    distance = position[:, None] - position[None, :]
    biased = scores - slopes[:, None, None] * distance
    return torch.softmax(torch.where(distance >= 0, biased, float("-inf")), dim=-1)


def alibi_softmax_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2 * scale, 8, 384, 384), torch.pow(2.0, -torch.arange(1, 9).float())]


def padded_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """scores: (B, H, S, S), lengths: (B,) int64 from 1 to S -> the same shape as scores, padding masked."""
    valid = torch.arange(scores.shape[-1], device=scores.device) < lengths[:, None, None, None]
    return torch.softmax(scores.masked_fill(~valid, torch.finfo(scores.dtype).min), dim=-1)


def padded_softmax_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(4 * scale, 6, 300, 300), torch.randint(1, 301, (4 * scale,))]


def soft_capped_softmax(scores: Tensor) -> Tensor:
    """scores: (B, H, S, S) in bfloat16 -> the same shape, capped at 50 as in Gemma 2, softmax in float32."""
    capped = 50.0 * torch.tanh(scores.float() / 50.0)
    return torch.softmax(capped, dim=-1).to(scores.dtype)


def soft_capped_softmax_inputs(scale: int = 1) -> list[Tensor]:
    return [(torch.randn(2 * scale, 4, 512, 512) * 8).bfloat16()]


def relative_bias_softmax(scores: Tensor, bias: Tensor) -> Tensor:
    """scores: (B, H, S, S), bias: (H, S, S) -> the same shape as scores, as in Swin and T5."""
    return torch.softmax(scores / 8 + bias, dim=-1)


def relative_bias_softmax_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(128 * scale, 6, 49, 49) * 8, torch.randn(6, 49, 49)]


def query_key_norm(query: Tensor, key: Tensor, query_weight: Tensor, key_weight: Tensor) -> tuple[Tensor, Tensor]:
    """query: (B, H, S, D), key: (B, G, S, D), weights: (D,) -> both, with the RMS of each head made one."""
    query = query * torch.rsqrt(query.square().mean(-1, keepdim=True) + 1e-6) * query_weight
    key = key * torch.rsqrt(key.square().mean(-1, keepdim=True) + 1e-6) * key_weight
    return query, key


def query_key_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(scale, 16, 768, 128), torch.randn(scale, 4, 768, 128), torch.randn(128), torch.randn(128)]


def rotary_embedding(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x: (B, S, H, D), cosine, sine: (S, D) -> the same shape as x, its halves turned as in Llama."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cosine[:, None, :] + turned * sine[:, None, :]


def rotary_embedding_inputs(scale: int = 1) -> list[Tensor]:
    length, size = 512, 128
    frequency = 10_000.0 ** -(torch.arange(0, size, 2) / size)
    angle = torch.arange(length)[:, None] * frequency.repeat(2)
    return [torch.randn(scale, length, 32, size), angle.cos(), angle.sin()]


def merge_heads_gated(x: Tensor, gate: Tensor) -> Tensor:
    """x: (B, H, S, D), gate: (B, S, H D) -> (B, S, H D), heads side by side under a sigmoid gate."""
    batch, heads, length, size = x.shape
    merged = x.transpose(1, 2).reshape(batch, length, heads * size)
    return merged * torch.sigmoid(gate)


def merge_heads_gated_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2 * scale, 12, 512, 64), torch.randn(2 * scale, 512, 768)]
