"""Which elements of a random output take few values."""

import pytest
import torch

from kernelwright.verification.accuracy.law import _takes_few_values


def draws(kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if kind == "dropout":
        return (torch.rand(64, 500, generator=generator) < 0.7).double() * torch.randn(500, generator=generator)
    if kind == "rows":
        return torch.stack([torch.randperm(60, generator=generator) for _ in range(64)]).double()
    return torch.randn(64, 500, generator=generator).double()


@pytest.mark.parametrize(("kind", "few"), [("dropout", True), ("rows", False), ("normal", False)])
def test_few_values_are_those_that_the_draws_show_completely(kind, few):
    found = _takes_few_values(draws(kind))
    assert bool(found.all()) == few and bool(found.any()) == few
