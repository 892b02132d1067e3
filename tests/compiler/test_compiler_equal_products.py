"""Products of one input become one, where the weights are small and every user can read slices."""

import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, randomized

NAME = "equal_products"


class Projections(nn.Module):
    """Several linear layers of one input, and what is made of their results."""

    def __init__(self, sizes, combine, bias=True):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, size, bias) for size in sizes)
        self.combine = combine

    def forward(self, x):
        return self.combine(*(layer(x) for layer in self.layers))


def attention(q, k, v):
    q, k, v = (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("seed", range(8))
def test_random_layers(seed):
    rng = random.Random(seed)
    sizes = [rng.randint(2, 5) for _ in range(rng.randint(2, 4))]
    shape = rng.choice([(100, 8), (4, 30, 8), (2, 5, 11, 8)])
    program = Projections(sizes, lambda *ys: [y.tanh() + 1 for y in ys], rng.random() < 0.5)
    captured = check(randomized(program, seed), [normal(*shape)], NAME, times=len(sizes))
    assert operators(captured).count("linear") == 1


def test_attention_reads_slices():
    captured = check(randomized(Projections([8, 8, 8], attention)), [normal(4, 40, 8)], NAME, times=3)
    assert operators(captured).count("linear") == 1


class Matrices(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Parameter(torch.ones(8, 4)), nn.Parameter(torch.ones(4, 8))

    def forward(self, x):
        y = (x @ self.one).relu()
        return y, (x @ self.other.t()).exp() * self.other.sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_that_are_computed_after_the_first_product(dtype):
    program = randomized(Matrices()).to(dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 0.05
    check(program, [normal(100, 8, dtype=dtype)], NAME, times=2, tolerance=tolerance)


def bound(*sizes, combine=lambda *ys: [y + 1 for y in ys], **options):
    return Projections(sizes, combine, **options)


class OneBias(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 4), nn.Linear(8, 4, bias=False)

    def forward(self, x):
        return self.one(x) + 1, self.other(x) + 1


REFUSED = {
    "few rows": (bound(8, 8), [(30, 8)]),
    "returned": (bound(4, 4, combine=lambda y, z: (y, z + 1)), [(100, 8)]),
    "returned as a view": (bound(4, 4, combine=lambda y, z: (y.view(50, 8), z + 1)), [(100, 8)]),
    "views that need other strides": (bound(4, 4, combine=lambda y, z: (y.view(50, 8) + 1, z + 1)), [(100, 8)]),
    "sorted": (bound(4, 4, combine=lambda y, z: (y.sort()[0], z + 1)), [(100, 8)]),
    "one has a bias": (OneBias(), [(100, 8)]),
    "one layer": (bound(4), [(100, 8)]),
}


@pytest.mark.parametrize("why", REFUSED)
def test_others_stay(why):
    program, shapes = REFUSED[why]
    assert count(captured_with(program.double(), [normal(*shape) for shape in shapes], NAME), NAME) == 0


def test_weights_that_are_arguments_stay():
    program = lambda x, v, w: (F.linear(x, v) + 1, F.linear(x, w) + 1)  # noqa: E731
    assert count(captured_with(program, [normal(100, 8), normal(4, 8), normal(4, 8)], NAME), NAME) == 0
