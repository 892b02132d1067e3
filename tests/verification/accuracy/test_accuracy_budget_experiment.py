"""The error budget on every honest and dishonest variant: the experiment of docs/error-budget.md as a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from budget_experiment import Result, experiment, misses
from variants import LOCAL_OPERATORS, Operator

HARD_SETS = {"level rows", "level channels", "near overflow"}
"""Where FP32 sums lose what is left of a mean, or squares overflow, and torch's own do not: docs/error-budget.md."""

FRAGILE = {"layer norm", "variance", "sum of 2^20", "sum of 2^20 positive"}


def judge(results: list[Result]) -> None:
    honest, bad = [r for r in results if r.honest], [r for r in results if not r.honest]
    assert len(honest) >= 50 and len(bad) >= 50 and len({r.operator for r in results}) >= 10
    assert not [line for line in misses(results) if line.startswith("INACCURATE")]
    refused = {(r.operator, r.variant) for r in honest if r.refused_in - HARD_SETS}
    assert len(refused) <= 0.02 * len(honest), misses(results)
    fragile = {(r.operator, r.variant) for r in honest if r.refused_in & HARD_SETS}
    assert {operator for operator, _ in fragile} <= FRAGILE, fragile
    assert not any(variant == "FP64 inside" for _, variant in fragile)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small tensors: two processes of tests with two threads each take seven times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_small_variants() -> None:
    judge(experiment(scale=0.125, seeds=(1,)))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("operator", LOCAL_OPERATORS, ids=lambda operator: operator.name)
def test_local_variants(operator: Operator) -> None:
    """Small rows, small outputs, single elements and fast convolutions: nothing is missed."""
    assert not misses(experiment(scale=0.125, seeds=(1,), operators=[operator]))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_full_variants() -> None:
    judge(experiment())
