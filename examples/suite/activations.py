"""Activation functions and gates, as people write them: one number in, one number out.

All of them wait on memory where the tensor is large: every operator reads and writes it whole. `GPU_SCALE` is the
`scale` with which each one's inputs fill a GPU; what is tiny stays tiny.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

GPU_SCALE = {
    "gelu_exact": 32,
    "gelu_tanh_by_hand": 32,
    "silu_by_hand": 16,
    "mish_by_hand": 16,
    "hardswish_by_hand": 32,
    "softplus_by_hand": 16,
    "quick_gelu": 32,
    "relu_squared_with_bias": 16,
    "leaky_per_channel": 16,
    "swiglu": 16,
    "geglu_bfloat16": 16,
    "swiglu_packed": 1,
    "soft_clip_odd": 8,
    "tiny_scaled_tanh": 1,
}


def gelu_exact(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N)."""
    return F.gelu(x)


def gelu_exact_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1024 * scale, 2048)]


def gelu_tanh_by_hand(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N), the approximation of GPT-2."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def gelu_tanh_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1024 * scale, 2048)]


def silu_by_hand(x: Tensor) -> Tensor:
    """x: (B, C, H, W) -> the same shape."""
    return x * torch.sigmoid(x)


def silu_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(8 * scale, 64, 56, 56)]


def mish_by_hand(x: Tensor) -> Tensor:
    """x: (B, C, H, W) -> the same shape."""
    return x * torch.tanh(F.softplus(x))


def mish_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(8 * scale, 64, 52, 52)]


def hardswish_by_hand(x: Tensor) -> Tensor:
    """x: (B, C, H, W) -> the same shape."""
    return x * torch.clamp(x + 3, 0, 6) / 6


def hardswish_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(16 * scale, 72, 28, 28) * 3]


def softplus_by_hand(x: Tensor) -> Tensor:
    """x: (N,) -> (N,), without overflow."""
    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))


def softplus_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1_500_000 * scale) * 5]


def quick_gelu(x: Tensor) -> Tensor:
    """x: (B, S, N), half precision -> the same shape, as in CLIP."""
    return x * torch.sigmoid(1.702 * x)


def quick_gelu_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(8 * scale, 77, 3072).half()]


def relu_squared_with_bias(x: Tensor, bias: Tensor) -> Tensor:
    """x: (M, N), bias: (N,) -> (M, N), as in Primer."""
    return torch.relu(x + bias).square()


def relu_squared_with_bias_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 3072), torch.randn(3072)]


def leaky_per_channel(x: Tensor, weight: Tensor) -> Tensor:
    """x: (B, C, H, W), weight: (C,), the slope of each channel below zero -> the same shape as x."""
    return torch.where(x > 0, x, weight[None, :, None, None] * x)


def leaky_per_channel_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(4 * scale, 96, 64, 64), torch.rand(96) * 0.3]


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up: (M, N) -> (M, N)."""
    return F.silu(gate) * up


def swiglu_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(256 * scale, 5504), torch.randn(256 * scale, 5504)]


def geglu_bfloat16(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up: (M, N) in bfloat16 -> (M, N)."""
    return F.gelu(gate) * up


def geglu_bfloat16_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 4096).bfloat16(), torch.randn(512 * scale, 4096).bfloat16()]


def swiglu_packed(x: Tensor) -> Tensor:
    """x: (M, 2 N), gate and value side by side -> (M, N)."""
    gate, up = x.chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up


def swiglu_packed_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(32 * scale, 2 * 2730)]


def soft_clip_odd(x: Tensor, limit: Tensor) -> Tensor:
    """x: (7 * scale, 1000003), whose rows start at no alignment, limit: () -> the same shape as x."""
    return limit * torch.tanh(x / limit)


def soft_clip_odd_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(7 * scale, 1_000_003), torch.tensor(2.5)]


def tiny_scaled_tanh(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """x: (scale, 300), gain, bias: (300,) -> the same shape as x; a layer of a small policy network."""
    return torch.tanh(x * gain + bias) * 0.1 + x


def tiny_scaled_tanh_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(scale, 300), torch.rand(300) + 0.5, torch.randn(300)]
