"""Normalisations: a mean or a mean square over some dimensions, and every number divided by its root.

All of them wait on memory; written by hand they walk the tensor four to eight times where two would do, and one where
a row stays in cache. `GPU_SCALE` is the `scale` with which each one's inputs fill a GPU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

GPU_SCALE = {
    "layer_norm": 16,
    "layer_norm_by_hand": 16,
    "channels_first_layer_norm": 16,
    "rms_norm": 32,
    "rms_norm_bfloat16": 32,
    "add_rms_norm": 16,
    "group_norm_silu": 16,
    "group_norm_by_hand": 16,
    "instance_norm_by_hand": 16,
    "batch_norm_inference": 16,
    "l2_normalise": 32,
    "weight_norm": 16,
    "tiny_layer_norm": 1,
}


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, S, N), weight, bias: (N,) -> the same shape as x."""
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def layer_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(4 * scale, 512, 768), torch.randn(768), torch.randn(768)]


def layer_norm_by_hand(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (M, N), weight, bias: (N,) -> (M, N)."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def layer_norm_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2000 * scale, 1000), torch.randn(1000), torch.randn(1000)]


def channels_first_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, C, H, W), weight, bias: (C,) -> the same shape as x, normalised over C, as in ConvNeXt."""
    mean = x.mean(1, keepdim=True)
    centred = x - mean
    variance = centred.square().mean(1, keepdim=True)
    return weight[:, None, None] * (centred * torch.rsqrt(variance + 1e-6)) + bias[:, None, None]


def channels_first_layer_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(4 * scale, 96, 56, 56), torch.randn(96), torch.randn(96)]


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x: (M, N), weight: (N,) -> (M, N)."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rms_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1024 * scale, 2048), torch.randn(2048)]


def rms_norm_bfloat16(x: Tensor, weight: Tensor) -> Tensor:
    """x: (M, N), weight: (N,), both bfloat16 -> (M, N) in bfloat16; float32 in between, as in Llama."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return weight * scaled.to(x.dtype)


def rms_norm_bfloat16_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 4096).bfloat16(), (1 + torch.randn(4096) / 8).bfloat16()]


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """x, residual: (M, N), weight: (N,) -> the normalised sum and the sum, both (M, N)."""
    total = x + residual
    normalised = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)
    return normalised * weight, total


def add_rms_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 2560), torch.randn(512 * scale, 2560), torch.randn(2560)]


def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, C, H, W), weight, bias: (C,) -> the same shape as x, in 32 groups, as in diffusion models."""
    return F.silu(F.group_norm(x, 32, weight, bias, eps=1e-6))


def group_norm_silu_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2 * scale, 320, 48, 48), torch.randn(320), torch.randn(320)]


def group_norm_by_hand(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, C, H, W), weight, bias: (C,) -> the same shape as x, in 8 groups."""
    batch, channels, height, width = x.shape
    groups = x.view(batch, 8, channels // 8 * height * width)
    mean = groups.mean(-1, keepdim=True)
    variance = groups.var(-1, keepdim=True, unbiased=False)
    normal = ((groups - mean) / torch.sqrt(variance + 1e-5)).view(x.shape)
    return normal * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def group_norm_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(8 * scale, 64, 56, 56), torch.randn(64), torch.randn(64)]


def instance_norm_by_hand(x: Tensor) -> Tensor:
    """x: (B, C, H, W) -> the same shape, each channel of each picture by itself."""
    mean = x.mean(dim=(2, 3), keepdim=True)
    variance = x.var(dim=(2, 3), keepdim=True, unbiased=False)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def instance_norm_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2 * scale, 32, 161, 161)]


def batch_norm_inference(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, C, H, W), the rest: (C,) -> the same shape as x, with ReLU."""
    scale = weight * torch.rsqrt(variance + 1e-5)
    shift = bias - mean * scale
    return torch.relu(x * scale[None, :, None, None] + shift[None, :, None, None])


def batch_norm_inference_inputs(scale: int = 1) -> list[Tensor]:
    channels = 128
    return [torch.randn(16 * scale, channels, 28, 28), torch.randn(channels), 0.5 + torch.rand(channels),
            torch.randn(channels), torch.randn(channels)]  # fmt: skip


def l2_normalise(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N), rows of length one, as of embeddings."""
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def l2_normalise_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(6000 * scale, 384)]


def weight_norm(direction: Tensor, length: Tensor) -> Tensor:
    """direction: (O, I, K), length: (O, 1, 1) -> the weight of a convolution, its norm over I and K given."""
    return length * direction / torch.sqrt((direction * direction).sum(dim=(1, 2), keepdim=True))


def weight_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 512, 7), torch.rand(512 * scale, 1, 1) + 0.5]


def tiny_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (3 * scale, 127), weight, bias: (127,) -> the same shape as x."""
    return F.layer_norm(x, (127,), weight, bias)


def tiny_layer_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(3 * scale, 127), torch.randn(127), torch.randn(127)]
