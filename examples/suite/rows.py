"""Rows as language models have them, in plain torch: what tuned libraries of kernels are measured by.

They wait on memory. `GPU_SCALE` is the `scale` with which each one's inputs fill a GPU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

GPU_SCALE = {
    "softmax_of_4096": 32,
    "softmax_of_65536": 32,
    "rms_norm_of_4096": 32,
    "rms_norm_of_65536": 32,
    "cross_entropy_of_4096": 32,
    "cross_entropy_of_65536": 32,
}


def softmax_of_4096(x: Tensor) -> Tensor:
    """x: (M, 4096), bfloat16 -> the same, rows that sum to one."""
    return torch.softmax(x, dim=-1)


def softmax_of_4096_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 4096, dtype=torch.bfloat16)]


def softmax_of_65536(x: Tensor) -> Tensor:
    """x: (M, 65536), bfloat16 -> the same, rows that sum to one."""
    return torch.softmax(x, dim=-1)


def softmax_of_65536_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(256 * scale, 65536, dtype=torch.bfloat16)]


def rms_norm_of_4096(x: Tensor, weight: Tensor) -> Tensor:
    """x: (M, 4096), weight: (4096,), bfloat16 -> as x; the mean of squares in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def rms_norm_of_4096_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 4096, dtype=torch.bfloat16), torch.randn(4096, dtype=torch.bfloat16)]


def rms_norm_of_65536(x: Tensor, weight: Tensor) -> Tensor:
    """x: (M, 65536), weight: (65536,), bfloat16 -> as x; the mean of squares in float32."""
    return rms_norm_of_4096(x, weight)


def rms_norm_of_65536_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(224 * scale, 65536, dtype=torch.bfloat16), torch.randn(65536, dtype=torch.bfloat16)]


def cross_entropy_of_4096(logits: Tensor, target: Tensor) -> Tensor:
    """logits: (M, 4096), bfloat16, target: (M,) -> (M,), each token's loss in float32."""
    return F.cross_entropy(logits.float(), target, reduction="none")


def cross_entropy_of_4096_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 4096, dtype=torch.bfloat16), torch.randint(0, 4096, (512 * scale,))]


def cross_entropy_of_65536(logits: Tensor, target: Tensor) -> Tensor:
    """logits: (M, 65536), bfloat16, target: (M,) -> (M,), each token's loss in float32."""
    return F.cross_entropy(logits.float(), target, reduction="none")


def cross_entropy_of_65536_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(224 * scale, 65536, dtype=torch.bfloat16), torch.randint(0, 65536, (224 * scale,))]
