"""A convolution with average pooling behind it: one convolution with the same result at every border."""

import random
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, randomized

NAME = "pooled_convolutions"
CONVOLUTIONS = [nn.Conv1d, nn.Conv2d, nn.Conv3d]
POOLS = [nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d]


@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions_and_windows(seed):
    rng = random.Random(seed)
    num_dims = rng.randint(1, 3)
    kernel = rng.randint(3, 4)
    convolution = CONVOLUTIONS[num_dims - 1](
        4, 6, kernel, stride=rng.choice([1, 1, 2]), padding=rng.randint(0, 2), groups=rng.choice([1, 2])
    )
    window = rng.randint(3, 4) if num_dims == 1 else 2
    pool = POOLS[num_dims - 1](window, rng.choice([window, window, window + 1]))
    x = normal(2, 4, *(rng.randint(17, 24) for _ in range(num_dims)), seed=seed)
    captured = check(randomized(nn.Sequential(convolution, pool), seed), [x], NAME)
    assert operators(captured).count("convolution") == 1


@pytest.mark.parametrize("dilation", [2, 3])
def test_a_dilated_kernel(dilation):
    program = nn.Sequential(nn.Conv2d(4, 6, (3, 1), dilation=dilation), nn.AvgPool2d((1, 4)))
    captured = captured_with(randomized(program), [normal(2, 4, 20, 20)], NAME)
    assert count(captured, NAME) == 0, "the dense kernel takes as many FLOPs"
    program = nn.Sequential(nn.Conv2d(4, 6, (2, 2), dilation=(dilation, 1)), nn.AvgPool2d(3))
    check(randomized(program), [normal(2, 4, 20, 20)], NAME)


def test_factors_of_the_channels_move_behind_the_pooling():
    program = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.AvgPool2d(4))
    check(randomized(program), [normal(2, 4, 20, 20)], NAME)


REFUSED = {
    "padded windows": nn.AvgPool2d(3, padding=1),
    "incomplete windows": nn.AvgPool2d(5, ceil_mode=True),
    "another divisor": nn.AvgPool2d(3, divisor_override=2),
    "windows of one element": nn.AvgPool2d(1),
    "many overlapping windows": nn.AvgPool2d(3, stride=1),
    "maxima": nn.MaxPool2d(3),
}


@pytest.mark.parametrize("why", REFUSED)
def test_other_pooling_stays(why):
    program = randomized(nn.Sequential(nn.Conv2d(4, 6, 3), REFUSED[why]))
    captured = captured_with(program, [normal(2, 4, 19, 19)], NAME)
    assert count(captured, NAME) == 0


def test_a_ceiling_that_changes_nothing_is_allowed():
    program = nn.Sequential(nn.Conv2d(4, 6, 3), nn.AvgPool2d(4, ceil_mode=True))
    check(randomized(program), [normal(2, 4, 18, 18)], NAME)


def test_an_output_that_is_used_elsewhere_stays():
    convolution = randomized(nn.Conv2d(4, 6, 3))
    program = lambda x: ((y := convolution(x)), nn.functional.avg_pool2d(y, 4))  # noqa: E731
    assert count(captured_with(program, [normal(2, 4, 18, 18)], NAME), NAME) == 0


def test_half_precision_stays():
    program = nn.Sequential(nn.Conv2d(4, 6, 3), nn.AvgPool2d(4)).to(torch.bfloat16)
    assert count(captured_with(program, [normal(2, 4, 18, 18, dtype=torch.bfloat16)], NAME), NAME) == 0
