"""One decoder block in the Llama manner: RMSNorm, rotary positions, grouped causal attention, SwiGLU.

Waits on arithmetic: nearly all of its FLOPs are in seven matrix products and the attention. What is left to gain is in
the pointwise operators between them, which are written one by one here as in many a training script.
"""

import os

import torch
from torch import Tensor, nn

GPU = os.environ.get("KW_SIZE") == "gpu"
BATCH, TOKENS, WIDTH, HIDDEN = (4, 4096, 4096, 14336) if GPU else (1, 512, 1024, 2816)
HEADS, GROUPS, HEAD = (32, 8, 128) if GPU else (16, 4, 64)
DTYPE = torch.bfloat16 if GPU else torch.float32


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width, dtype=DTYPE))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-5)
        return (wide * scale).to(x.dtype) * self.weight


def rotary_angles(tokens: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles, (T, HEAD / 2) each."""
    frequencies = 500_000.0 ** (-torch.arange(0, HEAD, 2, dtype=torch.float32) / HEAD)
    angles = torch.arange(tokens, dtype=torch.float32)[:, None] * frequencies
    return angles.cos().to(DTYPE), angles.sin().to(DTYPE)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (first half, second half) of a head by its position's angle; x: (B, H, T, HEAD)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = linear(WIDTH, HEADS * HEAD), linear(WIDTH, GROUPS * HEAD)
        self.value, self.output = linear(WIDTH, GROUPS * HEAD), linear(HEADS * HEAD, WIDTH)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (split_heads(project(x)) for project in (self.query, self.key, self.value))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(WIDTH), Attention()
        self.mlp_norm, self.mlp = RMSNorm(WIDTH), SwiGLU()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: (B, T, WIDTH) -> the same."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, dtype=DTYPE)


def split_heads(x: Tensor) -> Tensor:
    """(B, T, H * HEAD) -> (B, H, T, HEAD)."""
    return x.unflatten(-1, (-1, HEAD)).transpose(1, 2)


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=DTYPE), *rotary_angles(TOKENS)]
