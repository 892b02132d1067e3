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
    x = normal(3 ** (5 - num_dims), 4, *(rng.randint(17, 24) for _ in range(num_dims)), seed=seed)
    captured = check(randomized(nn.Sequential(convolution, pool), seed), [x], NAME)
    assert operators(captured).count("convolution") == 1


@pytest.mark.parametrize("dilation", [2, 3])
def test_a_dilated_kernel(dilation):
    program = nn.Sequential(nn.Conv2d(4, 6, (3, 1), dilation=dilation), nn.AvgPool2d((1, 4)))
    captured = captured_with(randomized(program), [normal(2, 4, 20, 20)], NAME)
    assert count(captured, NAME) == 0, "the dense kernel takes as many FLOPs"
    program = nn.Sequential(nn.Conv2d(4, 6, (2, 2), dilation=(dilation, 1)), nn.AvgPool2d(3))
    check(randomized(program), [normal(8, 4, 20, 20)], NAME)


def test_factors_of_the_channels_move_behind_the_pooling():
    program = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.AvgPool2d(4))
    check(randomized(program), [normal(8, 4, 20, 20)], NAME)


@pytest.mark.parametrize("seed", range(24))
def test_random_transposed_convolutions(seed):
    rng = random.Random(seed)
    num_dims = rng.randint(2, 3)
    stride, kernel = rng.randint(1, 3), rng.randint(2, 5)
    layer = (nn.ConvTranspose2d if num_dims == 2 else nn.ConvTranspose3d)(
        4, 6, kernel, stride, padding=rng.randint(0, kernel - 1), output_padding=rng.randint(0, stride - 1)
    )
    window, step = rng.randint(1, 4), stride * rng.choice([1, 1, 2])
    program = randomized(nn.Sequential(layer, nn.BatchNorm2d(6) if num_dims == 2 else nn.BatchNorm3d(6)), seed)
    program.append(POOLS[num_dims - 1](window, step))
    x = normal(2, 4, *(rng.randint(8, 11) for _ in range(num_dims)), seed=seed)
    check(program, [x], NAME, times=count(captured_with(program, [x], NAME), NAME))


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("output_padding", [0, 1])
def test_an_upsampled_output_is_never_made(padding, output_padding):
    layer = nn.ConvTranspose3d(4, 6, 3, 2, padding, output_padding)
    program = randomized(nn.Sequential(layer, nn.AvgPool3d(2)))
    x = normal(2, 4, 8, 9, 10)
    captured = check(program, [x], NAME)
    assert max(one.meta["val"].numel() for one in captured.graph.nodes if "val" in one.meta) < layer(x).numel() / 4


REFUSED = {
    "padded windows": nn.AvgPool2d(3, padding=1),
    "incomplete windows": nn.AvgPool2d(5, ceil_mode=True),
    "another divisor": nn.AvgPool2d(3, divisor_override=2),
    "windows of one element": nn.AvgPool2d(1),
    "many overlapping windows": nn.AvgPool2d(3, stride=1),
    "maxima": nn.MaxPool2d(3),
    "a kernel as large as the output": nn.AvgPool2d(17),
}


@pytest.mark.parametrize("why", REFUSED)
def test_other_pooling_stays(why):
    program = randomized(nn.Sequential(nn.Conv2d(4, 6, 3), REFUSED[why]))
    captured = captured_with(program, [normal(2, 4, 19, 19)], NAME)
    assert count(captured, NAME) == 0


def test_a_ceiling_that_changes_nothing_is_allowed():
    program = nn.Sequential(nn.Conv2d(4, 6, 3), nn.AvgPool2d(4, ceil_mode=True))
    check(randomized(program), [normal(8, 4, 18, 18)], NAME)


def test_an_output_that_is_used_elsewhere_stays():
    convolution = randomized(nn.Conv2d(4, 6, 3))
    program = lambda x: ((y := convolution(x)), nn.functional.avg_pool2d(y, 4))  # noqa: E731
    assert count(captured_with(program, [normal(2, 4, 18, 18)], NAME), NAME) == 0


REFUSED_TRANSPOSED = {
    "a stride between": (nn.ConvTranspose2d(4, 6, 3, 2), nn.AvgPool2d(3)),
    "groups": (nn.ConvTranspose2d(4, 6, 3, 2, groups=2), nn.AvgPool2d(2)),
    "dilated": (nn.ConvTranspose2d(4, 6, 3, 2, dilation=2), nn.AvgPool2d(2)),
    "large windows": (nn.ConvTranspose2d(4, 6, 2, 2), nn.AvgPool2d(8, 2)),
}


@pytest.mark.parametrize("why", REFUSED_TRANSPOSED)
def test_other_transposed_convolutions_stay(why):
    program = randomized(nn.Sequential(*REFUSED_TRANSPOSED[why]))
    assert count(captured_with(program, [normal(2, 4, 18, 18)], NAME), NAME) == 0


def test_half_precision_stays():
    program = nn.Sequential(nn.Conv2d(4, 6, 3), nn.AvgPool2d(4)).to(torch.bfloat16)
    assert count(captured_with(program, [normal(2, 4, 18, 18, dtype=torch.bfloat16)], NAME), NAME) == 0
