"""Who gets a variant in a bench, and under which name."""

import pytest
import torch

from kernelwright.benchmark.bench import bench
from kernelwright.benchmark.pairs import time_pairs
from kernelwright.benchmark.variants import BASELINE_NAMES, name_candidates
from kernelwright.core.timing import Conditions, Timing
from kernelwright.problems import Problem
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS


def program(x):
    return torch.relu(x + 1)


def wrong(x):
    return torch.relu(x + 1.01)


@pytest.fixture(scope="module")
def problem():
    return Problem.from_callable(program, torch.randn(2**12))


@pytest.mark.slow
def test_nothing_is_timed_where_every_candidate_is_rejected(problem):
    found = bench(problem, wrong, wrong)
    assert (found.variants, found.comparisons) == ((), ())
    assert [verdict.reason.code for verdict in found.verdicts] == ["inaccurate", "inaccurate"]


@pytest.mark.slow
def test_a_candidate_called_like_a_baseline_keeps_its_variant_and_is_verified_as_thoroughly_as_ever(problem):
    def eager(x):
        return (x + 1).clamp_min(0)

    found = bench(problem, eager, wrong, baselines=["eager"])
    assert {variant.name for variant in found.variants} == {"eager", "eager (1)"}
    assert [(c.variant, c.baseline) for c in found.comparisons] == [("eager (1)", "eager")]
    assert found.verdicts[0].input_sets >= len(DISTRIBUTIONS) - sum(kind.range_end != 0 for kind in DISTRIBUTIONS)
    assert all(variant.floor_us and variant.datasheet_bound_us is not None for variant in found.variants)
    assert found.comparisons[0].method.startswith("rounds in one process"), "live candidates share it"


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a/x.py"], ["candidate"]),
        (["x.py", "y.py"], ["x", "y"]),
        (["a/x.py", "b/x.py"], ["x (1)", "x (2)"]),
        (["x.py", "eager.py"], ["x", "eager (2)"]),
        (["x.py", "torch.compile.py"], ["x", "torch.compile (2)"]),
        (["x (2).py", "a/x.py", "b/x.py"], ["x (2)", "x (3)", "x (4)"]),
        (["a/x.py", "b/x.py", "x (2).py"], ["x (1)", "x (2)", "x (2) (3)"]),
    ],
)
def test_every_candidate_has_a_name_of_its_own(files, names):
    assert list(name_candidates(files)) == names
    assert not set(names) & set(BASELINE_NAMES.values())


class Pairs:
    """Of whom the candidate takes these times, one process after the other, and the baseline 100 us."""

    def __init__(self, times_us):
        self.times_us, self.taken = iter(times_us), 0

    def __call__(self, what):
        self.taken += 1
        return {name: timing(name, us) for name, us in (("fast", next(self.times_us)), ("eager", 100.0))}


def timing(name, time_us):
    conditions = Conditions(device="cpu", clock="host", cache="cold", allocation="", threads=2)
    samples = {"low_us": time_us, "high_us": time_us, "samples_us": (time_us,), "repetitions": 1}
    return Timing(name=name, time_us=time_us, conditions=conditions, **samples)


@pytest.mark.parametrize(
    ("times_us", "pairs", "verdict"),
    [
        ([90, 91, 90, 91, 90, 110, 95, 120, 100, 105], 10, "UNCLEAR"),  # five lucky ones
        ([110, 111, 110, 111, 110, 90, 105, 80, 100, 95], 10, "UNCLEAR"),
        ([90, 91, 90, 91, 90, 91, 90, 91, 90, 91], 10, "FASTER"),
        ([50, 51, 50, 51, 50], 5, "FASTER"),  # far from SAME: nothing to ask again
        ([200, 201, 200, 201, 200], 5, "SLOWER"),
        ([100, 100, 100, 100, 100], 5, "SAME"),
    ],
)
def test_a_narrow_claim_is_asked_again(times_us, pairs, verdict):
    taken = Pairs(times_us)
    (comparison,) = time_pairs(taken, ["fast"], ["eager"], 5).comparisons
    assert (comparison.verdict, comparison.pairs) == (verdict, pairs)
    assert taken.taken == pairs


def test_who_is_missing_from_a_pair_has_no_variant_and_the_others_keep_what_was_taken():
    taken = []

    def pair(what):
        taken.append(what)
        names = ["a", "b", "eager"] if len(taken) < 4 else ["b", "eager"]
        return {name: timing(name, 50.0 if name == "b" else 100.0) for name in names}

    measured = time_pairs(pair, ["a", "b"], ["eager"], 5)
    assert [(one.name, one.conditions.processes) for one in measured.timings] == [("b", 5), ("eager", 5)]
    assert [(one.variant, one.pairs) for one in measured.comparisons] == [("b", 5)]
    assert len(taken) == 5


def test_where_every_candidate_is_missing_nothing_is_timed_any_more():
    taken = []
    measured = time_pairs(lambda what: taken.append(what) or {}, ["a"], ["eager"], 5)
    assert (measured.timings, measured.comparisons, len(taken)) == ([], [], 1)
