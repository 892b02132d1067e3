"""Which elements of a random output take few values, and how laws differ."""

import random

import pytest
import torch

from kernelwright.verification.accuracy.draw_statistics import Positions
from kernelwright.verification.accuracy.law import OutputLaw, _takes_few_values, find_difference


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


def test_a_shuffle_keeps_its_sum_and_numbers_with_repeats_do_not():
    draw = {
        "shuffled": lambda: torch.randperm(300),
        "with repeats": lambda: torch.randint(300, (300,)),
    }

    def difference(candidate: str) -> str:
        torch.manual_seed(0)
        known, got, want = (
            torch.stack([draw[kind]() for _ in range(64)]).double() for kind in ("shuffled", candidate, "shuffled")
        )
        return find_difference(OutputLaw(known, Positions((300,), random.Random(0)), 0.0), got, want, 0)

    assert difference("shuffled") == ""
    assert "varies by" in difference("with repeats")
