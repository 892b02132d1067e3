"""The plan of input sets: random in order, complete, and decided by the problem alone."""

import random

import pytest
import torch

from kernelwright.problems import load_problem
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS, MIXED
from kernelwright.verification.accuracy.row_groups import check_groups
from kernelwright.verification.reference import Reference
from kernelwright.verification.set_plan import CHANGES, Targets, Variant, plan_sets, shorten

TARGETS = Targets(arguments=(1, 2), floating=(0,), special=(0,), tied=(0,), changeable=(0, 1), num_state=2)


def plan(seed=0, targets=TARGETS, *, perturb=True):
    return plan_sets(random.Random(seed), targets, perturb=perturb)


def test_every_distribution_argument_and_rare_value_is_planned():
    sets = plan()
    assert [one.index for one in sets] == list(range(len(sets)))
    assert {one.distribution for one in sets} >= set(DISTRIBUTIONS)
    for variant in (Variant.ARGUMENT, Variant.SKEWED_ARGUMENT):
        assert {one.target for one in sets if one.variant is variant} == {1, 2}
    assert {one.variant for one in sets} == set(Variant)
    assert sum(one.perturbed for one in sets) == 4
    assert not any(one.perturbed for one in plan(perturb=False))


def test_the_order_is_random_and_single_changes_follow_the_own_values():
    assert len({tuple(one.distribution.name for one in plan(seed)) for seed in range(5)}) == 5
    for seed in range(20):
        sets = plan(seed)
        assert not sets[0].perturbed
        own = next(one.index for one in sets if one.distribution is DISTRIBUTIONS[0])
        changes = [one.index for one in sets if one.variant in CHANGES]
        assert changes == list(range(own + 1, own + 1 + len(changes)))
        assert [sets[at].step for at in changes] == list(range(len(changes)))


def test_a_short_plan_has_the_most_important_sets():
    short = shorten(plan(), 4)
    assert {one.distribution for one in short} == set(DISTRIBUTIONS[:4])
    assert {one.target for one in shorten(plan(), 6) if one.variant is Variant.ARGUMENT} == {1, 2}


@pytest.fixture
def reference(tmp_path):
    def load(text, seed=1):
        (tmp_path / "f.py").write_text("import torch\n" + text)
        return Reference(load_problem(str(tmp_path / "f.py")), "cpu", seed, perturb_parameters=True)

    return load


SOFTMAX = "def f(x): return torch.softmax(x, -1)\ndef get_inputs(): return [torch.randn(24, 40)]\n"


def drawn(reference, *variants):
    sets = [reference.draw_set(one.index) for one in reference.plan if one.variant in variants]
    return [one for one in sets if one]


def test_rows_of_the_own_values_are_mixed_in_where_rows_are_independent(reference):
    rows = reference(SOFTMAX)
    mixed = [one for one in drawn(rows, Variant.DISTRIBUTION) if one.groups]
    assert len(mixed) >= 8
    for one in mixed:
        both = torch.cat([group.rows for group in one.groups])
        assert torch.equal(both.sort().values, torch.arange(24))
        got = [value.clone() for value in one.expected.reference]
        options = {"distribution": one.distribution, "policy": "reference"}
        assert check_groups(got, one.expected, one.groups, **options)[0] is None
        row = int(one.groups[1].rows[0])
        got[0][row] = 0.5
        reason, accuracy = check_groups(got, one.expected, one.groups, **options)
        assert reason and accuracy and accuracy.index[0] == row and f"[{row}, " in reason.detail
    whole = reference("def f(x): return x - x.mean(0)\ndef get_inputs(): return [torch.randn(24, 40)]\n")
    assert not any(one.groups for one in drawn(whole, Variant.DISTRIBUTION))


def test_timed_calls_have_rows_of_other_distributions(reference):
    softmax = reference(SOFTMAX)
    first, second = (softmax.make_timed_inputs(at)[0][0][0] for at in (1, 2))
    assert not torch.equal(first, second)
    assert softmax.make_timed_set(([first], {}), seed=5).distribution is MIXED
    logarithm = reference("def f(x): return x.log()\ndef get_inputs(): return [torch.rand(24, 40) + 0.5]\n")
    assert (logarithm.make_timed_inputs(1)[0][0][0] > 0).all()


def test_one_element_changes_from_call_to_call(reference):
    text = """
def f(x, offsets): return x.cumsum(0)[offsets[1:] - 1]
def get_inputs(): return [torch.randn(64, 3), torch.arange(0, 65, 8)]
"""
    problem = reference(text)
    own = next(one.index for one in problem.plan if one.distribution is DISTRIBUTIONS[0])
    before = problem.draw_set(own)
    for one in drawn(problem, *CHANGES):
        pairs = zip(before.inputs[0], one.inputs[0], strict=True)
        differing = [int((old != new).any(-1).sum() if old.dim() > 1 else (old != new).sum()) for old, new in pairs]
        assert sum(differing) == 1
        assert not torch.equal(before.expected.reference[0], one.expected.reference[0])
        before = one


def test_an_argument_is_redrawn_alone_and_only_as_the_reference_takes_it(reference):
    text = """
def f(x, index, mask):
    assert index.min() >= 2
    return torch.softmax(x.masked_fill(~mask, -torch.inf), -1)[index]
def get_inputs(): return [torch.randn(20, 9), torch.randint(2, 20, (50,)), torch.ones(20, 9).bool()]
"""
    problem = reference(text)
    for one in drawn(problem, Variant.ARGUMENT, Variant.SKEWED_ARGUMENT):
        assert one.expected.reference[0].isfinite().all()
        assert one.inputs[0][1].min() >= 2
    assert len(drawn(problem, Variant.ARGUMENT)) == 2


def test_a_set_of_every_variant_is_drawn_again(reference):
    problem = reference(SOFTMAX)
    for planned in problem.plan:
        one = problem.draw_set(planned.index)
        again = one and problem.redraw_set(one.kind, 1)
        if again:
            assert again.kind == one.kind and not torch.equal(again.inputs[0][0], one.inputs[0][0])
