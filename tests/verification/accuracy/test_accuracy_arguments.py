"""Redrawn arguments keep what they mean: range, order, distinctness, sum."""

import pytest
import torch

from kernelwright.verification.accuracy.arguments import is_argument, propose, propose_numbers


def proposals(example, skewed=False, seed=3):
    torch.manual_seed(0)
    return list(propose(example, torch.Generator().manual_seed(seed), skewed=skewed))


both = pytest.mark.parametrize("skewed", [False, True])


def test_values_are_no_arguments():
    assert not is_argument(torch.randn(20))
    assert not is_argument("mean")
    assert not is_argument(None)
    assert all(
        map(
            is_argument,
            (
                3,
                0.5,
                True,
                torch.tensor(3),
                torch.arange(5),
                torch.ones(4),
                torch.zeros(3, 3).fill_diagonal_(-torch.inf),
                torch.ones(2, 2).bool(),
            ),
        )
    )


@pytest.mark.parametrize(("number", "others"), [(True, {False}), (8, {9, 7, 16, 4}), (-1, {-2}), (0, {1})])
def test_other_numbers_keep_type_and_sign(number, others):
    found = list(propose_numbers(number, torch.Generator().manual_seed(0)))
    assert set(found) == others
    assert all(type(one) is type(number) for one in found)


@pytest.mark.parametrize("number", [0.5, -2.0, 0.0])
def test_another_factor_has_its_sign(number):
    (other,) = propose_numbers(number, torch.Generator().manual_seed(0))
    assert other != number and (other < 0) == (number < 0)


@both
@pytest.mark.parametrize("mask", [torch.ones(12, 30).bool(), torch.zeros(12, 30).fill_diagonal_(-torch.inf)])
def test_a_mask_gets_other_densities_and_no_row_loses_a_value(mask, skewed):
    first = proposals(mask, skewed)[0]
    low, high = (False, True) if mask.dtype == torch.bool else (-torch.inf, 0.0)
    assert bool(((first == low) | (first == high)).all())
    assert bool((first == high).any(-1).all()) and bool((first == low).any(-1).all())


@both
def test_ascending_offsets_keep_their_order_and_ends(skewed):
    offsets = torch.arange(0, 513, 16)
    found = proposals(offsets, skewed)
    for one in found:
        assert bool((one.diff() >= 0).all()) and (one[0], one[-1]) == (0, 512)
        assert one.diff().unique().numel() > 1, "steps are not equal"
    assert skewed or bool((found[0].diff() > 0).all()), "strictly ascending ones first"


@both
def test_distinct_indices_stay_distinct_and_a_permutation_stays_one(skewed):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    for one in proposals(order, skewed):
        assert torch.equal(one.sort().values, torch.arange(40))
    some = torch.tensor([7, 3, 90, 41])
    for one in proposals(some, skewed):
        assert one.unique().numel() == 4 and 3 <= int(one.min()) <= int(one.max()) <= 90


@both
def test_indices_stay_in_their_range(skewed):
    index = torch.randint(5, 90, (4000,), generator=torch.Generator().manual_seed(1))
    for one in proposals(index, skewed):
        assert int(index.min()) <= int(one.min()) and int(one.max()) <= int(index.max())
    if skewed:
        shares = [float((one == one.mode().values).float().mean()) for one in proposals(index, skewed)]
        assert min(shares) > 0.8 and max(shares) == 1


def test_negative_values_have_a_meaning_of_their_own():
    index = torch.tensor([-100, 3, 9, 9, -100, 4, 1, 0, 2])
    assert {int(v) for one in proposals(index) for v in one} <= set(index.tolist())


def test_counts_keep_their_sum_or_become_smaller():
    counts = torch.full((20,), 30)
    first, *others = proposals(counts)
    assert int(first.sum()) == 600 and int(first.min()) >= 0
    assert all(int(one.min()) >= 1 and int(one.max()) <= 30 for one in others)


def test_constants_vary():
    signed, unsigned = proposals(torch.full((40,), 0.25))
    assert (signed < 0).any() and (signed > 0).any() and (unsigned > 0).all()
    assert proposals(torch.zeros(9))[0].abs().max() > 0
