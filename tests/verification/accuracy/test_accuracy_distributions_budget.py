"""Redrawn inputs keep structure, strides and domain."""

from __future__ import annotations

import pytest
import torch

from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS, Distribution


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


every = pytest.mark.parametrize("kind", DISTRIBUTIONS, ids=lambda kind: kind.name)


def drawn(kind: Distribution, *values: torch.Tensor, seed: int = 7) -> list[torch.Tensor]:
    return kind.draw((list(values), {}), seed)[0]


@every
def test_structure_strides_and_sharing_stay(kind: Distribution) -> None:
    base = torch.randn(64, 48)
    args = [base.T, base[:, ::2], torch.randn(1, 5).expand(4, 5), torch.randn(6, dtype=torch.float64), 3, None]
    kwargs = {"pair": (torch.randn(2, 2).bfloat16(), "text")}
    before = base.clone()
    new_args, new_kwargs = kind.draw((args, kwargs), 1)
    for old, new in zip(args[:4], new_args[:4], strict=True):
        assert (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype)
        assert new.isfinite().all()
    assert new_args[4:] == [3, None] and new_kwargs["pair"][1] == "text"
    assert new_kwargs["pair"][0].dtype == torch.bfloat16
    assert new_args[0].untyped_storage().data_ptr() == new_args[1].untyped_storage().data_ptr()
    assert torch.equal(base, before)
    assert (new_args[2][0] == new_args[2][3]).all()


@every
def test_domains_stay(kind: Distribution) -> None:
    positive = torch.rand(40, 50) * 10 + 0.1
    unit = torch.rand(1000)
    probability = torch.randn(16, 32).softmax(-1)
    mask = (torch.rand(20, 20) > 0.5).float()
    additive = torch.zeros(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
    ordered = torch.rand(100).sort().values * 20
    scalar, constant, relu = torch.tensor(1e-5), torch.full((9,), 0.25), torch.randn(30, 30).relu()
    new = drawn(kind, positive, unit, probability, mask, additive, ordered, scalar, constant, relu)
    assert (new[0] > 0).all()
    assert ((new[1] >= 0) & (new[1] <= 1)).all()
    assert torch.allclose(new[2].sum(-1), torch.ones(16), atol=1e-4) and (new[2] >= 0).all()
    assert torch.equal(new[3], mask) and torch.equal(new[4], additive)
    assert (new[5].diff() >= 0).all()
    assert torch.equal(new[6], scalar) and torch.equal(new[7], constant)
    assert (new[8] >= 0).all() and ((new[8] == 0) >= (relu == 0)).all()


@every
def test_integers_stay_in_their_range(kind: Distribution) -> None:
    index, offsets, flags = torch.randint(100, (50,)), torch.arange(0, 50, 5), torch.rand(10, 2) > 0.5
    new = drawn(kind, index, offsets, flags)
    assert torch.equal(new[0].sort().values, index.sort().values)
    assert torch.equal(new[1], offsets)
    assert torch.equal(new[2].sum(), flags.sum())


@pytest.mark.parametrize("kind", DISTRIBUTIONS[1:], ids=lambda kind: kind.name)
def test_seeds_and_tensors_differ(kind: Distribution) -> None:
    x = torch.randn(200)
    first, second = drawn(kind, x, x.clone())
    assert not torch.equal(first, second)
    assert [torch.equal(one, x) for one in (first, second)].count(True) == kind.single_tensor
    first = drawn(kind, x)[0]
    assert not torch.equal(first, x) and not torch.equal(first, drawn(kind, x, seed=8)[0])
    assert torch.equal(first, drawn(kind, x)[0])
    small = drawn(kind, x * 2.0**-20)[0]
    assert small.abs().max() < (1e-1 if kind.coarse else 1e-3), "the scale of the example is kept"


def test_low_bits_lean_one_way() -> None:
    kind = next(k for k in DISTRIBUTIONS if k.name == "biased low bits")
    x = drawn(kind, torch.randn(1000))[0]
    kept = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
    assert ((x - kept).abs() / x.abs() > 2.0**-13).all()
    assert ((x.abs() - kept.abs()) > 0).all()


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0), ()])
@every
def test_empty_and_single_elements(kind: Distribution, shape: tuple[int, ...]) -> None:
    assert drawn(kind, torch.ones(shape))[0].shape == shape


def test_so_many_sets_of_levels_are_drawn_that_one_whose_sums_are_exact_does_not_decide():
    named = {kind.name: kind for kind in DISTRIBUTIONS}

    def draws(name: str, *shape: int) -> int:
        return named[name].count_sets(([torch.randn(shape), torch.randn(3), torch.tensor(1), 2.0], {}))

    assert [draws("level rows", *shape) for shape in ((9, 40), (32, 40), (64, 40), (8, 16, 40))] == [8, 2, 1, 1]
    assert [draws("level channels", *shape) for shape in ((2, 8, 5, 5), (2, 8, 512, 256), (40, 9), (40, 100))] == [
        8,
        2,
        8,
        1,
    ]
    assert draws("sparse", 9, 40) == 1
    assert named["level rows"].count_sets(([torch.arange(5)], {})) == 1
