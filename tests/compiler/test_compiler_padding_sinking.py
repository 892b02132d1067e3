"""Zeros around a convolution's input become its padding, where they are zeros, and the same on both sides."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, randomized

NAME = "padding_sinking"
PADDED = {
    "all": (nn.Conv2d(4, 6, 3), [1, 1, 2, 2]),
    "rows": (nn.Conv2d(4, 6, 3), [0, 0, 2, 2]),
    "columns": (nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2), [3, 3]),
    "one dimension": (nn.Conv1d(4, 6, 3), [1, 1]),
    "three dimensions": (nn.Conv3d(4, 6, 2), [1, 1, 0, 0, 2, 2]),
}


@pytest.mark.parametrize("which", PADDED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_symmetric_zeros(which, dtype):
    layer, pad = PADDED[which]
    layer = randomized(layer).to(dtype)
    x = normal(2, 4, *[9] * (layer.weight.dim() - 2), dtype=dtype)
    captured = check(lambda x: layer(F.pad(x, pad)), [x], NAME, tolerance=0)
    assert operators(captured) == ["convolution"]


def test_all_users_of_the_padded_tensor():
    one, other = randomized(nn.Conv2d(4, 6, 3)), randomized(nn.Conv2d(4, 2, 5, padding=1))
    captured = check(
        lambda x: [layer(y) for y in [F.pad(x, [1, 1, 1, 1])] for layer in (one, other)],
        [normal(2, 4, 9, 9)],
        NAME,
        times=2,
    )
    assert operators(captured) == ["convolution"] * 2


CONV = nn.Conv2d(4, 6, 3).double()
REFUSED = {
    "another side": lambda x: CONV(F.pad(x, [1, 2, 1, 1])),
    "another number": lambda x: CONV(F.pad(x, [1, 1], value=1.0)),
    "cropped": lambda x: CONV(F.pad(x, [-1, -1])),
    "more channels": lambda x: CONV(F.pad(x[:, :2], [0, 0, 0, 0, 1, 1])),
    "reflection": lambda x: CONV(F.pad(x, [1, 1, 1, 1], mode="reflect")),
    "replication": lambda x: CONV(F.pad(x, [1, 1, 1, 1], mode="replicate")),
    "circular": lambda x: CONV(F.pad(x, [1, 1, 0, 0], mode="circular")),
    "used elsewhere": lambda x: (CONV(F.pad(x, [1, 1])), F.pad(x, [1, 1]) * 2),
    "named padding": lambda x: F.conv2d(F.pad(x, [1, 1]), CONV.weight, padding="same"),
    "transposed": lambda x: F.conv_transpose2d(F.pad(x, [1, 1]), CONV.weight.transpose(0, 1)),
    "the weight": lambda x: F.conv2d(x, F.pad(CONV.weight, [1, 1])),
}


@pytest.mark.parametrize("why", REFUSED)
def test_others_stay(why):
    captured = captured_with(REFUSED[why], [normal(2, 4, 9, 9)], "repeated_work", NAME)
    assert count(captured, NAME) == 0
