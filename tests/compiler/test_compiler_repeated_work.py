"""What is computed twice or has no effect disappears, bit for bit; what only seems to stays."""

import math
import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, count, normal, operators, run

NAME = "repeated_work"
SPECIAL = torch.tensor([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 3e38])
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def check_bits(program, *args):
    """The rewritten graph returns the same bits, zeros' signs included; the number of rewrites and the graph."""
    captured = captured_with(program, args, NAME)
    captured.graph.lint()
    with torch.no_grad():
        expected = pytree.tree_leaves(program(*args))
    for got, want in zip(run(captured, program, *args), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, check_stride=True)
        if got.is_floating_point():
            assert torch.equal(*(torch.signbit(one.nan_to_num(0.0)) for one in (got, want)))
    return count(captured, NAME), captured


NEUTRAL = {
    "x * 1": lambda x: x * 1,
    "x * 1.0": lambda x: 1.0 * x,
    "x / 1": lambda x: x / 1,
    "x ** 1": lambda x: x**1,
    "x - 0": lambda x: x - 0.0,
    "x + -0.0": lambda x: x + -0.0,
    "dropout of nothing": lambda x: F.dropout(x, 0.0),
    "dropout in eval mode": lambda x: F.dropout(x, 0.5, training=False),
    "copy": lambda x: x.clone(),
    "two transpositions": lambda x: x.view(2, 4).t().t(),
    "two permutations": lambda x: x.view(2, 2, 2).permute(1, 2, 0).permute(2, 0, 1),
    "two views": lambda x: x.view(2, 4).view(4, 2),
    "the same view": lambda x: x.view(8),
    "relu of relu": lambda x: x.relu().relu(),
    "relu of sigmoid": lambda x: x.sigmoid().relu(),
    "clamps": lambda x: x.clamp(-1, 2).clamp(0, 6),
    "clamps on one side": lambda x: x.clamp(min=-1).clamp(max=0.5),
    "clamps apart": lambda x: x.clamp(-3, -2).clamp(1, 2),
}


@pytest.mark.parametrize("which", NEUTRAL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_without_effect(which, dtype):
    operator = NEUTRAL[which]
    times, _ = check_bits(lambda x: operator(x.neg()).exp(), SPECIAL.to(dtype))
    assert times == 1


EFFECTIVE = {
    "x + 0.0": lambda x: x + 0.0,
    "x - (-0.0)": lambda x: x - -0.0,
    "x * 0": lambda x: x * 0,
    "0 - x": lambda x: 0 - x,
    "2 / x": lambda x: 2 / x,
    "another dtype": lambda x: x.to(torch.float64),
    "rounded": lambda x: torch.div(x, 1, rounding_mode="floor"),
    "scaled shift": lambda x: torch.sub(x, 0.0, alpha=2),
    "one transposition": lambda x: x.view(2, 4).t(),
    "another layout": lambda x: x.view(2, 4).t().contiguous(),
    "relu of tanh": lambda x: x.tanh().relu(),
    "clamp of crossed bounds": lambda x: x.clamp(2, 1).clamp(0, 6),
    "random numbers": lambda x: F.dropout(x, 0.5),
    "an integer times 1.0": lambda x: x.isnan() * 1.0,
}


@pytest.mark.parametrize("which", EFFECTIVE)
def test_operators_with_an_effect_stay(which):
    operator = EFFECTIVE[which]
    captured = captured_with(lambda x: operator(x.neg()).exp(), [SPECIAL], NAME)
    assert count(captured, NAME) == 0


def test_integers_lose_a_zero():
    assert check_bits(lambda x: (x + 0) * 2, torch.arange(8))[0] == 1


def test_equal_calls_are_one():
    times, captured = check_bits(lambda x: (x.exp() * 2) + (x.exp() * 2).sin(), normal(8))
    assert times == 2
    assert operators(captured) == ["exp", "mul", "sin", "add"]


DIFFERENT = {
    "zeros": lambda x: 1 / (x * 0.0) + 1 / (x * -0.0),
    "types": lambda x: (x.round().long() * 1 + x.round().long() * True) * 1.5,
    "dimensions": lambda x: x.view(2, 4).sum(0).sum() + x.view(2, 4).sum(1).sum(),
}


@pytest.mark.parametrize("which", DIFFERENT)
def test_calls_with_other_numbers_stay_two(which):
    check_bits(DIFFERENT[which], normal(8))


def test_random_operators_are_drawn_twice():
    captured = captured_with(lambda x: torch.rand_like(x) - torch.rand_like(x), [normal(8)], NAME)
    assert count(captured, NAME) == 0


RETURNED = {
    "two equal results": lambda x: (x + 1, x + 1),
    "an argument times 1": lambda x: x * 1,
    "a view of a copy": lambda x: x.clone().view(2, 4),
    "a transposed view": lambda x: x.view(2, 4).t().t(),
}


@pytest.mark.parametrize("which", RETURNED)
def test_returned_tensors_have_memory_of_their_own(which):
    x = normal(8)
    assert check_bits(RETURNED[which], x)[0] == 0


class Swap(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.zeros(8))
        self.register_buffer("other", torch.ones(8))

    def forward(self, x):
        one = self.one.clone()
        self.one.copy_(self.other)
        self.other.copy_(one)
        return x + one


def test_a_copy_that_is_written_to_a_buffer_stays():
    captured = captured_with(Swap(), [torch.ones(8)], NAME)
    results = run(captured, Swap(), torch.ones(8))
    assert [one.sum().item() for one in results] == [8, 0, 8]


UNARY = [torch.exp, torch.relu, torch.sigmoid, torch.neg, torch.Tensor.clone]
UNARY += [lambda x: x * 1, lambda x: x - 0.0, lambda x: x.clamp(-1, 1), lambda x: x.clamp(0), lambda x: x + 0.0]
UNARY += [lambda x: x.view(4, 2), lambda x: x.t(), lambda x: x.contiguous(), lambda x: x / 1]


@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed):
    rng = random.Random(seed)
    chosen = [rng.choices(UNARY, k=6) for _ in range(3)]

    def program(x):
        results = []
        for chain in chosen:
            y = x.view(2, 4)
            for operator in chain:
                if y.is_contiguous() or operator is not UNARY[10]:
                    y = operator(y)
            results.append(y.reshape(8))
        return torch.stack(results)

    dtype = rng.choice(DTYPES)
    check_bits(program, SPECIAL.to(dtype))
