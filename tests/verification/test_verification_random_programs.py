"""Random programs: judged by value under the reference's generator, by law where a candidate draws for itself."""

import itertools
import math

import pytest
import torch

import kernelwright as kw
from kernelwright.problems.loading import load_problem
from kernelwright.problems.problem import Problem
from kernelwright.verification import verdict as judge
from kernelwright.verification.accuracy.distributions import MIXED
from kernelwright.verification.accuracy.expected import compute_expected
from kernelwright.verification.input_set import InputSet
from kernelwright.verification.reference import Reference
from kernelwright.verification.stochastic_outputs import StochasticOutputs

SHAPE = (32, 96)
BY_VALUE, BY_LAW = "stochastic: judged by value, under the reference's generator", "stochastic: judged by law, 64 draws"


def dropout(x):
    return torch.nn.functional.dropout(x, 0.5, training=True)


def noise(x):
    return x + torch.randn_like(x)


def own_dropout(x):
    return torch.where(torch.rand_like(x) < 0.5, x * 2, 0.0)


def box_muller(x):
    size, angle = torch.rand_like(x, dtype=torch.float64), torch.rand_like(x)
    return x + (-2 * torch.log1p(-size)).sqrt().float() * torch.cos(2 * math.pi * angle)


def channels(x):
    return torch.nn.functional.dropout2d(x.view(8, 8, 6, 8), 0.5, training=True)


def drawn_once(x):
    return x * MASK


def ring_of_masks(x):
    return x * RING[next(CALLS) % len(RING)]


def shared_by_halves(x):
    mask = (torch.rand(x.shape[0], x.shape[1] // 2) < 0.5) * 2.0
    return x * torch.cat([mask, mask], 1)


def mirrored(x):
    mask = (torch.rand(x.numel() // 2) < 0.5) * 2.0
    return x * torch.cat([mask, mask.flip(0)]).view_as(x)


def exactly_half(x):
    mask = torch.zeros(x.numel())
    mask[torch.randperm(x.numel())[: x.numel() // 2]] = 2.0
    return x * mask.view_as(x)


def rows_not_dropped(x):
    mask = (torch.rand_like(x) < 0.5) * 2.0
    mask[-2:] = 2.0
    return x * mask


MASK = (torch.rand(SHAPE) < 0.5) * 2.0
RING, CALLS = [(torch.rand(SHAPE) < 0.5) * 2.0 for _ in range(5)], itertools.count()


def verify(reference, candidate, **options):
    problem = Problem("random", reference, lambda: ([torch.randn(SHAPE)], {}), None, "")
    return kw.verify(problem, candidate, **options)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (dropout, own_dropout),
        (noise, box_muller),
        (channels, lambda x: x.view(8, 8, 6, 8) * ((torch.rand(8, 8, 1, 1) < 0.5) * 2.0)),
        (lambda x: torch.randperm(300), lambda x: torch.rand(300).argsort()),
        (
            lambda x: torch.multinomial(x.softmax(-1), 3),
            lambda x: (x.softmax(-1) / torch.empty_like(x).exponential_().mul_(2)).topk(3).indices,
        ),
        (lambda x: (x + 1, torch.cat([x, dropout(x)])), lambda x: (1 + x, torch.cat([x, own_dropout(x)]))),
    ],
    ids=["dropout", "normal", "channels", "permutation", "multinomial", "beside values"],
)
def test_draws_of_its_own_are_accepted_if_they_have_the_law(reference, candidate):
    verdict = verify(reference, candidate, sets=3)
    assert verdict.accepted, verdict.reason
    assert BY_LAW in verdict.notes or BY_VALUE in verdict.notes
    assert len(set(verdict.notes)) == len(verdict.notes)


def test_the_references_draws_are_judged_by_value():
    assert verify(dropout, dropout, sets=3).notes == (BY_VALUE,)
    verdict = verify(noise, lambda x: (x.half() + torch.randn_like(x)).float(), sets=1)
    assert not verdict.accepted, "the law is right, and the values under the same seed are not precise"
    assert "law" not in verdict.reason.detail


@pytest.mark.parametrize(
    ("reference", "candidate", "finding"),
    [
        (dropout, drawn_once, "calls under different seeds share"),
        (dropout, ring_of_masks, "calls under different seeds"),
        (dropout, shared_by_halves, "elements share"),
        (dropout, mirrored, "elements share"),
        (channels, lambda x: own_dropout(x).view(8, 8, 6, 8), "elements share"),
        (dropout, exactly_half, "varies by"),
        (dropout, rows_not_dropped, "judged by law"),
        (dropout, lambda x: torch.where(torch.rand_like(x) < 0.42, x * 2, 0.0), "judged by law"),
        (dropout, lambda x: torch.where(torch.rand_like(x) < 0.5, x * 1.9, 0.0), "returns values"),
        (noise, lambda x: x + (torch.rand_like(x) - 0.5) * math.sqrt(12), "distribution"),
        (noise, lambda x: x + 0.9 * torch.randn(x.shape, dtype=torch.float64).float(), "judged by law"),
        (lambda x: torch.randperm(300), lambda x: torch.randint(300, (300,)), "varies by"),
    ],
)
def test_another_law_is_rejected(reference, candidate, finding):
    verdict = verify(reference, candidate, sets=1)
    assert not verdict.accepted
    assert verdict.reason.code == "inaccurate"
    assert finding in verdict.reason.detail


def test_the_part_that_is_not_random_is_judged_by_value():
    verdict = verify(dropout, lambda x: torch.where(torch.rand_like(x) < 0.5, (x.half() * 2).float(), 0.0), sets=1)
    assert verdict.reason.code == "inaccurate"
    assert "times the limit" in verdict.reason.detail
    verdict = verify(lambda x: (x.exp(), dropout(x)), lambda x: (x.half().exp().float(), own_dropout(x)), sets=1)
    assert "worst at output[0]" in verdict.reason.detail


def shuffled(x):
    return x[torch.randperm(len(x))]


def rarely_scaled(x):
    return x * torch.where(torch.rand(len(x), 1) < 0.04, 1.005, 1.0)


def judge_own_draws(reference, candidate, *, num_rows, numbers):
    """Reasons to reject first calls with sets of inputs of these numbers, by law."""
    for number in numbers:
        torch.manual_seed(number)
        x = torch.randn(num_rows, 33)
        expected = compute_expected(reference, None, ([x], {}), seed=number)
        input_set = InputSet(MIXED, ([x], {}), expected, None, False, law_seed=number)
        outputs = StochasticOutputs(lambda again, seed: [candidate(*again.inputs[0])], "reference")
        result = outputs.judge([candidate(x)], input_set)
        assert result
        yield result.reason


@pytest.mark.parametrize(
    ("reference", "num_rows", "numbers"), [(shuffled, 8, (25, 26, 37)), (rarely_scaled, 60, (2, 6, 7))]
)
def test_correct_values_that_few_draws_do_not_show_are_accepted(reference, num_rows, numbers):
    """Sets for which 32 draws repeat each value of an element, and the candidate's is another one near these."""
    assert not any(judge_own_draws(reference, reference, num_rows=num_rows, numbers=numbers))


def test_imprecise_values_are_rejected_though_others_are_rare():
    reasons = judge_own_draws(rarely_scaled, lambda x: rarely_scaled(x.bfloat16().float()), num_rows=60, numbers=(0, 1))
    assert all(reason and "times the limit" in reason.detail for reason in reasons)


def test_a_program_that_must_be_deterministic_follows_the_seed():
    problem = Problem("random", dropout, lambda: ([torch.randn(SHAPE)], {}), None, "", deterministic=True)
    assert kw.verify(problem, own_dropout, sets=2).accepted
    generator = torch.Generator()
    verdict = kw.verify(problem, lambda x: x * (torch.rand(x.shape, generator=generator) < 0.5) * 2, sets=2)
    assert verdict.reason.code == "nondeterministic"


PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.nn.functional.dropout(x, 0.5, training=True)
def get_inputs(): return [torch.randn(32, 96)]
"""
OWN_GENERATOR = """
import torch
GENERATOR = torch.Generator()
GENERATOR.{seed}
class ModelNew(torch.nn.Module):
    def forward(self, x): return x * (torch.rand(x.shape, generator=GENERATOR) < 0.5) * 2
"""


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "accepted"), [("manual_seed(5)", False), ("seed()", True)])
def test_a_generator_of_its_own_draws_other_numbers_in_every_process(file, seed, accepted):
    candidate = file("candidate.py", OWN_GENERATOR.format(seed=seed))
    verdict = judge.verify(file("problem.py", PROBLEM), candidate, sets=1, check_timed_calls=False)
    assert verdict.accepted == accepted
    assert accepted or "loaded again" in verdict.reason.detail


def test_every_call_has_a_secret_seed_that_follows_from_the_verdicts(file):
    problem = load_problem(file("problem.py", PROBLEM))
    one, again, other = (Reference(problem, "cpu", seed, perturb_parameters=False) for seed in (1, 1, 2))
    sets = [reference.draw_set(index) for reference in (one, again, other) for index in range(2)]
    seeds = [each.seed for each in sets]
    assert seeds[:2] == seeds[2:4]
    assert len({*seeds, *(each.law_seed for each in sets)}) == 8
    drawn = [each.expected.reference[0] for each in sets]
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0] == 0, drawn[4] == 0)
    assert torch.equal(one.run_values(sets[0].inputs, seed=seeds[0])[0], drawn[0])
