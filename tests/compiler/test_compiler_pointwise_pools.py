"""Average pooling of 1x1 convolutions: the input is pooled, with the same result, where that is less work."""

import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, randomized

NAME = "pointwise_pools"
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOLS = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}


@pytest.mark.parametrize("seed", range(24))
def test_random_convolutions_and_windows(seed):
    rng = random.Random(seed)
    rank = seed % 3 + 1
    layer = rng.choice([CONVOLUTIONS, CONVOLUTIONS, TRANSPOSED])[rank]
    layers = [layer(6, rng.choice([6, 8, 32]), 1, bias=rng.random() < 0.5, groups=rng.choice([1, 1, 2]))]
    if rng.random() < 0.5:
        layers.append(NORMS[rank](layers[0].out_channels))
    sizes, strides = ([rng.randint(2, 3) for _ in range(rank)] for _ in range(2))
    program = randomized(nn.Sequential(*layers, POOLS[rank](sizes, strides)), seed)
    x = normal(2, 6, *(rng.randint(6, 11) for _ in range(rank)), seed=seed)
    captured = check(program, [x], NAME)
    names = operators(captured)
    pool = next(index for index, name in enumerate(names) if name.startswith("avg_pool"))
    assert pool < names.index("convolution")


@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d(4), nn.AvgPool2d(4, ceil_mode=True), nn.AvgPool2d((1, 2))])
def test_other_spellings_of_complete_windows(pool):
    captured = check(randomized(nn.Sequential(nn.Conv2d(4, 6, 1), pool)), [normal(2, 4, 16, 16)], NAME)
    (rewrite,) = captured.rewrites
    assert rewrite.flops_saved > 0 < rewrite.bytes_saved


def test_a_chain_of_two():
    program = nn.Sequential(nn.Conv2d(4, 6, 1), nn.AvgPool2d(2), nn.Conv2d(6, 8, 1), nn.AvgPool2d(2))
    captured = check(randomized(program), [normal(2, 4, 16, 16)], NAME, times=2)
    assert operators(captured).index("convolution") > 0
    both = captured_with(randomized(program), [normal(2, 4, 16, 16)], NAME, "pool_chains")
    assert sum(name.startswith("avg_pool") for name in operators(both)) < 3


def test_channels_last_keeps_its_layout():
    x = normal(2, 4, 16, 16).contiguous(memory_format=torch.channels_last)
    check(randomized(nn.Sequential(nn.Conv2d(4, 6, 1), nn.AvgPool2d(2))), [x], NAME)


def test_a_norm_and_a_function_before_the_convolution_are_pooled():
    program = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1, bias=False), nn.AvgPool2d(2))
    check(randomized(program), [normal(2, 8, 10, 10)], NAME)


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 6, 1), nn.Conv2d(4, 6, 1, bias=False)])
def test_a_mean_over_all_positions_is_moved_by_another_rewrite(layer):
    program = randomized(nn.Sequential(layer, nn.AdaptiveAvgPool2d(1)))
    check(program, [normal(2, 4, 16, 16)], "linear_reductions")


class Used(nn.Module):
    """A convolution whose output is returned next to its pooled output."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(4, 6, 1)

    def forward(self, x):
        y = self.layer(x)
        return y, F.avg_pool2d(y, 2)


STAY = {
    "used elsewhere": Used(),
    "a larger kernel": nn.Sequential(nn.Conv2d(4, 6, (1, 3)), nn.AvgPool2d(2)),
    "a stride": nn.Sequential(nn.Conv2d(4, 6, 1, stride=2), nn.AvgPool2d(2)),
    "a padded input": nn.Sequential(nn.Conv2d(4, 6, 1, padding=1), nn.AvgPool2d(2)),
    "padded windows": nn.Sequential(nn.Conv2d(4, 6, 1), nn.AvgPool2d(2, padding=1)),
    "incomplete windows": nn.Sequential(nn.Conv2d(4, 6, 1), nn.AvgPool2d(3, ceil_mode=True)),
    "another divisor": nn.Sequential(nn.Conv2d(4, 6, 1), nn.AvgPool2d(2, divisor_override=3)),
    "windows of one element": nn.Sequential(nn.Conv2d(4, 6, 1), nn.AvgPool2d(1)),
    "windows that differ in size": nn.Sequential(nn.Conv2d(4, 6, 1), nn.AdaptiveAvgPool2d(3)),
    "maxima": nn.Sequential(nn.Conv2d(4, 6, 1), nn.MaxPool2d(2)),
    "not linear": nn.Sequential(nn.Conv2d(4, 6, 1), nn.ReLU(), nn.AvgPool2d(2)),
    "few channels out of many": nn.Sequential(nn.Conv2d(4, 1, 1), nn.AvgPool2d((1, 2))),
    "windows that overlap, of more channels": nn.Sequential(nn.Conv2d(4, 1, 1), nn.AvgPool2d(7, 1)),
}


@pytest.mark.parametrize("why", STAY)
def test_other_pooling_stays(why):
    assert count(captured_with(randomized(STAY[why]), [normal(2, 4, 16, 16)], NAME), NAME) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays(dtype):
    program = nn.Sequential(nn.Conv2d(4, 6, 1), nn.AvgPool2d(2)).to(dtype)
    assert count(captured_with(program, [normal(2, 4, 16, 16, dtype=dtype)], NAME), NAME) == 0
