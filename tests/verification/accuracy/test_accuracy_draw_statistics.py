"""Statistics of random outputs."""

import random

import torch

from kernelwright.verification.accuracy.draw_statistics import Positions, measure_windows


def draws_of_rows(pool_size: int) -> torch.Tensor:
    """32 draws of 64 rows, each from a pool of prepared ones."""
    generator = torch.Generator().manual_seed(0)
    pool = torch.randn(pool_size, 128, generator=generator)
    return pool[torch.randint(pool_size, (32, 64), generator=generator)].flatten(1)


def test_prepared_rows_are_found_by_the_windows_that_occur_twice():
    positions = Positions((64, 128), random.Random(0))
    (prepared,), (fresh,) = (measure_windows(draws_of_rows(size), positions) for size in (5_000, 10_000_000))
    assert bool((prepared.values > 0.01).all())
    assert not fresh.values.any()


def test_small_outputs_have_no_windows():
    assert measure_windows(torch.randn(32, 100), Positions((100,), random.Random(0))) == []
