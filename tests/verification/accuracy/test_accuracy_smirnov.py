"""Smirnov's tests: known probabilities, and values without a difference."""

import math

import pytest
import torch

from kernelwright.verification.accuracy.smirnov import (
    one_sample_critical,
    one_sample_distance,
    two_sample_critical,
    two_sample_distance,
)


def test_two_samples_that_do_not_overlap_are_as_improbable_as_they_can_be():
    least = 2 / math.comb(16, 8)
    assert two_sample_critical(8, 8, least * 1.01) <= 1
    assert two_sample_critical(8, 8, least * 0.99) > 1


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_two_samples_of_equal_law_are_rarely_found_different(alpha):
    draws = torch.rand(48, 4000, generator=torch.Generator().manual_seed(1))
    found = (two_sample_distance(draws[:16], draws[16:]) > two_sample_critical(16, 32, alpha)).double().mean()
    assert alpha / 3 < found < alpha * 1.2


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_uniform_values_are_rarely_found_not_to_be(alpha):
    draws = torch.rand(12, 4000, generator=torch.Generator().manual_seed(2))
    found = (one_sample_distance(draws) > one_sample_critical(12, alpha)).double().mean()
    assert alpha / 2 < found < alpha * 1.2


def test_differences_within_the_tolerance_do_not_count():
    values = torch.linspace(0, 1, 20).unsqueeze(1)
    assert two_sample_distance(values, values + 1e-4, 2e-4).item() == 0
    assert two_sample_distance(torch.zeros(20, 1), torch.full((20, 1), 1e-4), 1e-5).item() == 1
