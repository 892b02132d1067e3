"""Rewrites of poolings: a maximum before a function, a pooling of a pooling, one dimension after the other."""

import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, run

CHAINS, FUNCTIONS, SEPARABLE = "pool_chains", "increasing_functions", "separable_pools"
MAXIMUM, AVERAGE = (
    {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d},
    {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d},
)
NUM_POOLS = {"max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"}


def image(rank, rng, dtype=torch.float64):
    return normal(2, 3, *[rng.randint(9, 16) for _ in range(rank)], seed=rng.randint(0, 99), dtype=dtype)


def with_odd_values(x):
    flat = x.view(-1)
    flat[::17], flat[3::29], flat[5::31] = float("nan"), float("-inf"), float("inf")
    return x


def num_pools(captured):
    return sum(name in NUM_POOLS for name in operators(captured))


@pytest.mark.parametrize("seed", range(12))
def test_maxima_before_functions(seed):
    rng = random.Random(seed)
    rank, size = rng.randint(1, 3), rng.randint(2, 3)
    functions = [
        torch.relu, torch.sigmoid, torch.tanh, torch.floor, lambda x: x * 0.3 - 2, lambda x: (x + 1) / 7,
        lambda x: x.clamp(-0.5, 0.4), lambda x: x.clamp(max=0.2), lambda x: F.hardtanh(x).exp(),
    ]  # fmt: skip
    function = rng.choice(functions)
    options = {"stride": rng.randint(1, 3), "padding": rng.randint(0, 1), "ceil_mode": rng.random() < 0.3}
    x = with_odd_values(image(rank, rng, rng.choice([torch.float64, torch.float32])))
    program = lambda x: MAXIMUM[rank](function(x), size, **options)  # noqa: E731
    captured = check_with_odd_values(program, x, FUNCTIONS)
    assert count(captured, FUNCTIONS) >= 1
    first = next(name for name in operators(captured) if name != "unsqueeze")
    assert first.startswith("max_pool")


def check_with_odd_values(program, x, name):
    captured = captured_with(program, [x], name)
    captured.graph.lint()
    (got,) = run(captured, program, x)
    torch.testing.assert_close(got, program(x), rtol=0, atol=0, equal_nan=True, check_stride=True)
    return captured


FUNCTIONS_THAT_STAY = {
    "decreasing": lambda x: F.max_pool2d(-x, 2),
    "a negative factor": lambda x: F.max_pool2d(x * -0.5, 2),
    "a tensor": lambda x: F.max_pool2d(x + x[:, :1], 2),
    "no order": lambda x: F.max_pool2d(x.sin(), 2),
    "used elsewhere": lambda x: (y := x.relu(), F.max_pool2d(y, 2)),
    "an average": lambda x: F.avg_pool2d(x.relu(), 2),
    "another type": lambda x: F.max_pool2d(x.float(), 2),
    "indices": lambda x: F.max_pool2d(x.relu(), 2, return_indices=True),
    "an infinite factor": lambda x: F.max_pool2d(x * float("inf"), 2),
}


@pytest.mark.parametrize("why", FUNCTIONS_THAT_STAY)
def test_other_functions_stay(why):
    captured = captured_with(FUNCTIONS_THAT_STAY[why], [normal(2, 4, 9, 9)], FUNCTIONS)
    assert count(captured, FUNCTIONS) == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_maximum_of_maxima(seed):
    rng = random.Random(seed)
    rank, size = rng.randint(1, 3), rng.choice([2, 3])
    padding, ceil_mode = rng.randint(0, 1), rng.random() < 0.3
    pool, outer = MAXIMUM[rank], rng.choice([2, 3])
    program = lambda x: pool(pool(x, size, padding=padding, ceil_mode=ceil_mode), outer)  # noqa: E731
    captured = check_with_odd_values(program, with_odd_values(image(rank, rng)), CHAINS)
    assert count(captured, CHAINS) == num_pools(captured) == 1


@pytest.mark.parametrize("seed", range(6))
def test_an_average_of_averages(seed):
    rng = random.Random(seed)
    rank, size, outer, stride = rng.randint(1, 3), rng.choice([2, 3]), rng.choice([2, 3]), rng.randint(2, 3)
    pool = AVERAGE[rank]
    captured = check(lambda x: pool(pool(x, size), outer, stride), [image(rank, rng)], CHAINS)
    assert num_pools(captured) == 1


CHAINS_THAT_STAY = {
    "padding between": lambda x: F.max_pool2d(F.max_pool2d(x, 2), 2, padding=1),
    "a gap": lambda x: F.max_pool2d(F.max_pool2d(x, 2, 3), 2),
    "dilation": lambda x: F.max_pool2d(F.max_pool2d(x, 2), 2, dilation=2),
    "unequal windows": lambda x: F.avg_pool2d(F.avg_pool2d(x, 2, padding=1, count_include_pad=False), 2),
    "overlapping averages": lambda x: F.avg_pool2d(F.avg_pool2d(x, 2, 1), 2),
    "a divisor": lambda x: F.avg_pool2d(F.avg_pool2d(x, 2, divisor_override=3), 2),
    "two kinds": lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2),
    "used elsewhere": lambda x: (y := F.max_pool2d(x, 2), F.max_pool2d(y, 2)),
    "an incomplete window": lambda x: F.max_pool2d(F.max_pool2d(x, 3), 2, ceil_mode=True),
    "more work": lambda x: F.max_pool2d(F.max_pool2d(x, 5, 1), 5, 1),
}


@pytest.mark.parametrize("why", CHAINS_THAT_STAY)
def test_other_chains_stay(why):
    assert count(captured_with(CHAINS_THAT_STAY[why], [normal(2, 4, 39, 39)], CHAINS), CHAINS) == 0


@pytest.mark.parametrize("seed", range(12))
def test_large_windows_one_dimension_after_the_other(seed):
    rng = random.Random(seed)
    rank, is_average = rng.randint(2, 3), rng.random() < 0.5
    sizes = [rng.randint(9, 11) for _ in range(rank)]
    options = {
        "stride": [rng.randint(1, 2) for _ in range(rank)],
        "padding": [rng.randint(0, 3) for _ in range(rank)],
        "ceil_mode": rng.random() < 0.3,
    }
    if is_average:
        options |= {"count_include_pad": rng.random() < 0.5, "divisor_override": rng.choice([None, 5])}
    x = normal(1, 2, *[rng.randint(20, 24) for _ in range(rank)], seed=seed)
    program = lambda x: (AVERAGE if is_average else MAXIMUM)[rank](x, sizes, **options)  # noqa: E731
    captured = check(program, [x], SEPARABLE)
    assert num_pools(captured) == rank


def test_large_windows_of_odd_values():
    x = with_odd_values(normal(2, 3, 20, 21))
    captured = check_with_odd_values(lambda x: F.max_pool2d(x, 7, 1, 3), x, SEPARABLE)
    assert num_pools(captured) == 2


SMALL = {
    "a small window": lambda x: F.max_pool2d(x, 5, 1),
    "no overlap": lambda x: F.max_pool2d(x, 7),
    "one dimension": lambda x: F.max_pool2d(x, (1, 9), 1),
    "indices": lambda x: F.max_pool2d(x, 7, 1, return_indices=True),
}


@pytest.mark.parametrize("why", SMALL)
def test_other_windows_stay(why):
    assert count(captured_with(SMALL[why], [normal(2, 4, 15, 15)], SEPARABLE), SEPARABLE) == 0
