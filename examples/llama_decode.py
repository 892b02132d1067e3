"""One decoded token of a Llama: a whole language model at batch 1 with a static key-value cache.

Every weight is read once for two FLOPs, so the memory's read bandwidth is the floor: 2.5 GB in BF16 at the size of
Llama 3.2 1B. What stands in the way is overhead: a thousand operators, nearly all of them on a few kilobytes.

`KW_SIZE=gpu` selects that size; without it the same program is a small model in FP32, which a laptop runs. Weights and
the cache are random, scaled so that logits have a standard deviation of about 1; the cache holds the keys and values of
all earlier positions, as after a prompt. Nothing is downloaded.
"""

import os

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GPU = os.environ.get("KW_SIZE") == "gpu"
LAYERS, WIDTH, HEADS, GROUPS, HIDDEN = (16, 2048, 32, 8, 8192) if GPU else (4, 512, 8, 2, 2048)
VOCABULARY, POSITIONS = (128_256, 1024) if GPU else (8192, 1024)
DTYPE = torch.bfloat16 if GPU else torch.float32
DEVICE = "cuda" if GPU and torch.cuda.is_available() else "cpu"  # where weights are drawn: on a CPU it takes a minute


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * normal(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Grouped attention of the new tokens to the cache, which it updates at their positions."""

    def __init__(self, width: int, heads: int, groups: int, positions: int) -> None:
        super().__init__()
        self.head = width // heads
        self.query, self.key = linear(width, width), linear(width, groups * self.head)
        self.value, self.output = linear(width, groups * self.head), linear(width, width)
        self.register_buffer("keys", normal(1, groups, positions, self.head))
        self.register_buffer("values", normal(1, groups, positions, self.head))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, position: Tensor) -> Tensor:
        query, key, value = (self.split_heads(project(x)) for project in (self.query, self.key, self.value))
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        mixed = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H * head) -> (B, H, T, head)."""
        return x.unflatten(-1, (-1, self.head)).transpose(1, 2)


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, hidden: int, positions: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(width), Attention(width, heads, groups, positions)
        self.mlp_norm, self.mlp = RMSNorm(width), SwiGLU(width, hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, position: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, mask, position)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, groups: int, hidden: int, vocabulary: int, positions: int
    ) -> None:
        super().__init__()
        head = width // heads
        self.embedding = nn.Parameter(normal(vocabulary, width) / width**0.5)  # of tokens and, transposed, of logits
        self.layers = nn.ModuleList(Layer(width, heads, groups, hidden, positions) for _ in range(layers))
        self.norm = RMSNorm(width)
        steps = torch.arange(0, head, 2, dtype=torch.float32, device=DEVICE) / head
        self.register_buffer("frequencies", 500_000.0**-steps, persistent=False)
        self.positions = positions

    def forward(self, token_ids: Tensor, position: Tensor) -> Tensor:
        """token_ids: (1, 1), position: (1,), int64 -> logits (1, 1, vocabulary)."""
        x = F.embedding(token_ids, self.embedding)
        angles = position[:, None].float() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = torch.arange(self.positions, device=x.device) <= position[:, None]
        for layer in self.layers:
            x = layer(x, cos, sin, mask, position)
        return F.linear(self.norm(x), self.embedding)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (first half, second half) of a head by its position's angle; x: (B, H, T, head)."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=DTYPE, device=DEVICE)


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False, dtype=DTYPE, device="meta")
    layer.weight = nn.Parameter(normal(outputs, inputs) / inputs**0.5)
    return layer


def get_init_inputs() -> list[int]:
    return [LAYERS, WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY, POSITIONS]


def get_inputs() -> list[Tensor]:
    position = torch.randint(POSITIONS // 2, POSITIONS, (1,))
    return [torch.randint(VOCABULARY, (1, 1)), position]
