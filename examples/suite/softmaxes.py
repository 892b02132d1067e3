"""Softmax and what is made of it, over every dimension and every length of row.

They wait on memory on a GPU, and on torch's exp on a CPU. `GPU_SCALE` is the `scale` with which each one's inputs
fill a GPU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

GPU_SCALE = {
    "softmax_last": 32,
    "softmax_columns": 16,
    "softmax_middle": 16,
    "softmax_by_hand": 32,
    "softmax_bfloat16": 32,
    "log_softmax_odd": 16,
    "softmax_temperature": 16,
    "softmax_masked": 16,
    "softmax_very_long": 16,
    "softmax_two_rows": 16,
    "softmax_short_rows": 32,
    "softmax_of_transposed": 16,
    "logsumexp_rows": 32,
    "entropy_of_logits": 16,
    "gumbel_softmax": 16,
}


def softmax_last(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N), rows that sum to one."""
    return torch.softmax(x, dim=-1)


def softmax_last_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2048 * scale, 1000)]


def softmax_columns(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N), columns that sum to one."""
    return torch.softmax(x, dim=0)


def softmax_columns_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1024 * scale, 2048)]


def softmax_middle(x: Tensor) -> Tensor:
    """x: (B, C, H, W), C classes -> the same shape: the probabilities of each pixel's classes."""
    return F.softmax(x, dim=1)


def softmax_middle_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(4 * scale, 21, 129, 129)]


def softmax_by_hand(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N): maximum, difference, exponential, sum, quotient."""
    largest = x.max(dim=-1, keepdim=True).values
    exponentials = torch.exp(x - largest)
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def softmax_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 4096) * 3]


def softmax_bfloat16(x: Tensor) -> Tensor:
    """x: (M, N) in bfloat16 -> (M, N) in bfloat16; float32 in between."""
    return torch.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


def softmax_bfloat16_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1024 * scale, 2048).bfloat16()]


def log_softmax_odd(x: Tensor) -> Tensor:
    """x: (M, 4097) -> the same shape."""
    return torch.log_softmax(x, dim=-1)


def log_softmax_odd_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(400 * scale, 4097) * 2]


def softmax_temperature(x: Tensor, temperature: Tensor) -> Tensor:
    """x: (M, N), temperature: (M, 1), positive -> (M, N), as for sampling."""
    return torch.softmax(x / temperature, dim=-1)


def softmax_temperature_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(48 * scale, 32_000), torch.rand(48 * scale, 1) + 0.5]


def softmax_masked(x: Tensor, mask: Tensor) -> Tensor:
    """x: (M, N), mask: (M, N), True where a value counts, at least once in each row -> (M, N)."""
    return torch.softmax(x.masked_fill(~mask, float("-inf")), dim=-1)


def softmax_masked_inputs(scale: int = 1) -> list[Tensor]:
    mask = torch.rand(1500 * scale, 1024) < 0.7
    mask[:, 0] = True
    return [torch.randn(1500 * scale, 1024), mask]


def softmax_very_long(x: Tensor) -> Tensor:
    """x: (2 * scale, 1000003) -> the same shape: few rows, each longer than a cache."""
    return torch.softmax(x, dim=-1)


def softmax_very_long_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2 * scale, 1_000_003) * 2]


def softmax_two_rows(x: Tensor) -> Tensor:
    """x: (2, N) -> (2, N): here the rows grow with the scale, there are always two."""
    shifted = x - x.amax(dim=1, keepdim=True)
    return shifted.exp() / shifted.exp().sum(dim=1, keepdim=True)


def softmax_two_rows_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2, 750_000 * scale)]


def softmax_short_rows(x: Tensor) -> Tensor:
    """x: (M, 127) -> the same shape: many short rows, scaled by the root of their length."""
    return torch.softmax(x * 127**-0.5, dim=-1)


def softmax_short_rows_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(10_000 * scale, 127) * 10]


def softmax_of_transposed(x: Tensor) -> Tensor:
    """x: (M, N), the transpose of a contiguous (N, M) -> (M, N), rows that sum to one."""
    return torch.softmax(x, dim=-1)


def softmax_of_transposed_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1000, 1536 * scale).t()]


def logsumexp_rows(x: Tensor) -> Tensor:
    """x: (M, N) -> (M,)."""
    return torch.logsumexp(x, dim=-1)


def logsumexp_rows_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1024 * scale, 2048) * 2]


def entropy_of_logits(logits: Tensor) -> Tensor:
    """logits: (M, N) -> (M,), the entropy of each row's distribution in nats."""
    logs = F.log_softmax(logits, dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)


def entropy_of_logits_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(32 * scale, 50_257)]


def gumbel_softmax(logits: Tensor, uniform: Tensor) -> Tensor:
    """logits, uniform: (M, N), uniform between 0 and 1 -> (M, N), a relaxed sample of each row."""
    noise = -torch.log(-torch.log(uniform.clamp(1e-6, 1 - 1e-6)))
    return torch.softmax((logits + noise) / 0.7, dim=-1)


def gumbel_softmax_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2000 * scale, 512), torch.rand(2000 * scale, 512)]
