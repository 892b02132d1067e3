"""NaN and infinities may spread but not be lost; ties are where they should be."""

import math

import torch

from kernelwright.verification.accuracy.expected import compute_expected
from kernelwright.verification.accuracy.special_values import (
    allow_spread,
    draw_places,
    find_effect,
    insert_ties,
    is_defined,
    write_at,
)


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def test_few_rows_have_one_and_late_ones_are_in_the_second_half():
    x = torch.randn(40, 10, generator=generator())
    for seed in range(5):
        places = draw_places(x, generator(seed), late=True)
        assert 1 <= len(places) <= 10 and len({row for row, _ in places}) == len(places)
        assert all(column >= 5 for _, column in places)
    assert draw_places(torch.zeros(7), generator(), late=False)[0][0] < 7


def test_a_lost_nan_is_seen_and_a_spread_one_is_not():
    x = torch.randn(6, 8, generator=generator())
    before = [x.amax(-1)]
    write_at(x, [(2, 3)], math.nan)
    expected = compute_expected(lambda x: x.amax(-1), None, ([x], {}))
    assert is_defined(expected)
    depends = find_effect(before, [x.nan_to_num(nan=9.0).amax(-1)])
    assert depends[0].tolist() == [False, False, True, False, False, False]
    lost, spread = torch.nan_to_num(x, nan=-math.inf).amax(-1), torch.full((6,), math.nan)
    assert not torch.equal(
        allow_spread([lost], expected, depends, keeps_numbers=False)[0].isnan(), expected.reference[0].isnan()
    )
    torch.testing.assert_close(
        allow_spread([spread], expected, depends, keeps_numbers=True), expected.reference, equal_nan=True
    )


def test_what_is_nan_only_in_the_reference_is_not_compared():
    x = torch.randn(30, 2, generator=generator())

    def sums(x):
        ends = x.cumsum(0)
        return ends[9::10] - ends[0:21:10]

    before, other = [sums(x)], x.clone()
    write_at(other, [(3, 0)], 8.0)
    depends = find_effect(before, [sums(other)])
    write_at(x, [(3, 0)], math.nan)
    expected = compute_expected(sums, None, ([x], {}))
    own = torch.stack([x[1:10].sum(0), x[11:20].sum(0), x[21:30].sum(0)])
    assert expected.reference[0].isnan().sum() == 3 and own.isnan().sum() == 1
    allowed = allow_spread([own], expected, depends, keeps_numbers=False)[0]
    assert torch.equal(allowed.isnan(), expected.reference[0].isnan())


def test_ties_and_next_numbers_are_in_one_row():
    x = torch.randn(64, 50, generator=generator())
    before = x.clone()
    insert_ties(x, generator())
    assert all(len(row.unique()) < 50 for row in x)
    assert any(len(row.unique()) == 1 for row in x)
    steps = torch.cat([row.unique().diff() for row in x])
    assert 0 < steps.min() < 1e-6
    assert x.isfinite().all() and x.max() <= before.max() + 1e-5
