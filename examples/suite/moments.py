"""Statistics of rows and columns: means, spreads, extremes, running sums.

They wait on memory: each wants one or two passes over the input, and written as operators takes three to eight. (Not
`statistics.py`: that would hide Python's own module from whoever runs a file beside it.) `GPU_SCALE` is the `scale`
with which each one's inputs fill a GPU.
"""

import torch
from torch import Tensor

GPU_SCALE = {
    "mean_and_variance": 16,
    "standardise_columns": 16,
    "min_max_scale": 1,
    "skewness": 32,
    "largest_and_where": 16,
    "cumulative_mean": 16,
    "moving_normaliser": 16,
    "clip_outliers": 16,
    "energy_with_single_dims": 16,
    "weighted_mean_of_transposed": 16,
    "squared_distances": 1,
    "tiny_standard_score": 1,
}


def mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """x: (M, N) -> the mean and the unbiased variance of each row, both (M,)."""
    return x.mean(dim=-1), x.var(dim=-1)


def mean_and_variance_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1500 * scale, 1500) + 1]


def standardise_columns(x: Tensor) -> Tensor:
    """x: (M, N), M samples of N features -> (M, N), each feature with mean 0 and spread 1."""
    return (x - x.mean(dim=0)) / (x.std(dim=0) + 1e-8)


def standardise_columns_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(20_000 * scale, 90) * 3 + 2]


def min_max_scale(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N), each row from 0 to 1."""
    low, high = x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)
    return (x - low) / (high - low + 1e-6)


def min_max_scale_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(64 * scale, 1000)]


def skewness(x: Tensor) -> Tensor:
    """x: (M, N) -> (M,), the third moment of each row over the cube of its spread."""
    centred = x - x.mean(dim=1, keepdim=True)
    variance = (centred**2).mean(dim=1)
    return (centred**3).mean(dim=1) / (variance + 1e-12) ** 1.5


def skewness_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.exp(torch.randn(333 * scale, 4097) / 2)]


def largest_and_where(x: Tensor) -> tuple[Tensor, Tensor]:
    """x: (M, N) -> the largest value of each row and its position in int64, both (M,)."""
    return x.amax(dim=-1), x.argmax(dim=-1)


def largest_and_where_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(64 * scale, 32_000)]


def cumulative_mean(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N), the mean of each row up to and with each value."""
    count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    return x.cumsum(dim=1) / count


def cumulative_mean_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 2500) + 0.5]


def moving_normaliser(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N - 64): each value over the root mean square of the 64 before it."""
    sums = (x * x).cumsum(dim=-1)
    power = (sums[:, 64:] - sums[:, :-64]).clamp(min=0) / 64
    return x[:, 64:] / torch.sqrt(power + 1e-3)


def moving_normaliser_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1000 * scale, 1440)]


def clip_outliers(x: Tensor) -> Tensor:
    """x: (M, N) -> (M, N), each row held within two and a half spreads of its mean."""
    mean, spread = x.mean(dim=1, keepdim=True), x.std(dim=1, keepdim=True)
    return torch.minimum(torch.maximum(x, mean - 2.5 * spread), mean + 2.5 * spread)


def clip_outliers_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1200 * scale, 1024)]


def energy_with_single_dims(x: Tensor, gain: Tensor) -> Tensor:
    """x: (B, 1, N, 1), gain: (1, 1, N, 1) -> (B, 1), the mean square of each signal after its gain."""
    return (x * gain).square().mean(dim=2).squeeze(-1)


def energy_with_single_dims_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(125 * scale, 1, 10_007, 1), torch.rand(1, 1, 10_007, 1) + 0.5]


def weighted_mean_of_transposed(x: Tensor, weight: Tensor) -> Tensor:
    """x: (M, N), the transpose of a contiguous (N, M), weight: (N,), positive -> (M,)."""
    return (x * weight).sum(dim=1) / weight.sum()


def weighted_mean_of_transposed_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(999, 1500 * scale).t(), torch.rand(999) + 0.1]


def squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    """points: (2000 * scale, 3), centres: (64, 3) -> (2000 * scale, 64), of every point to every centre."""
    return (points[:, None, :] - centres[None, :, :]).square().sum(dim=-1)


def squared_distances_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2000 * scale, 3), torch.randn(64, 3)]


def tiny_standard_score(x: Tensor) -> Tensor:
    """x: (5 * scale, 131) -> the same shape: in spreads from the mean of all."""
    return (x - x.mean()) / x.std()


def tiny_standard_score_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(5 * scale, 131) + 1]
