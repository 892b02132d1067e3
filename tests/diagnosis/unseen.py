"""Programs that no constant of the predictions was fitted to; `KW_SIZE=gpu` makes them large. See predictions.py."""

import os

import torch
import torch.nn.functional as F

GPU = os.environ.get("KW_SIZE") == "gpu"
ROWS = 16384 if GPU else 2048


def gelu_residual(x, w, b, r):
    return F.gelu(x * w + b, approximate="tanh") + r


def gelu_residual_inputs():
    return [torch.randn(ROWS, 4096), torch.randn(4096), torch.randn(4096), torch.randn(ROWS, 4096)]


def swiglu(a, b):
    return F.silu(a) * b


def swiglu_inputs():
    dtype = torch.bfloat16 if GPU else torch.float32
    return [torch.randn(ROWS, 4096, dtype=dtype), torch.randn(ROWS, 4096, dtype=dtype)]


def layernorm_by_hand(x, w, b):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * w + b


def layernorm_by_hand_inputs():
    return [torch.randn(ROWS, 4096), torch.randn(4096), torch.randn(4096)]


def huber_loss(x, y):
    d = (x - y).abs()
    return torch.where(d < 1, 0.5 * d * d, d - 0.5).mean()


def huber_loss_inputs():
    return [torch.randn(ROWS, 4096), torch.randn(ROWS, 4096)]


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rotary_inputs():
    batch, length = (4, 4096) if GPU else (1, 1024)
    return [torch.randn(batch, 32, length, 128), torch.randn(length, 64), torch.randn(length, 64)]


def adam_step(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.95 * v + 0.05 * g * g
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def adam_step_inputs():
    count = 2**26 if GPU else 2**22
    return [torch.randn(count), torch.randn(count), torch.randn(count), torch.rand(count)]


class SmallMlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x):
        for _ in range(6):
            x = x + self.down(F.gelu(self.up(x)))
        return x


small_mlp = SmallMlp()


def small_mlp_inputs():
    return [torch.randn(16, 256)]


def naive_attention(q, k, v):
    scores = (q @ k.transpose(-1, -2)) * 0.125
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ v


def naive_attention_inputs():
    batch, length = (4, 2048) if GPU else (1, 512)
    return [torch.randn(batch, 16, length, 64) for _ in range(3)]


def tiny_norms(x, w):
    for _ in range(8):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    return x


def tiny_norms_inputs():
    return [torch.randn(8, 512), torch.randn(512)]


def transposed_copy(x, y):
    return x.transpose(1, 2).contiguous() + y


def transposed_copy_inputs():
    batch = 32 if GPU else 4
    return [torch.randn(batch, 1024, 2048), torch.randn(batch, 2048, 1024)]


NAMES = [name.removesuffix("_inputs") for name in list(globals()) if name.endswith("_inputs")]
