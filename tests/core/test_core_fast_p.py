"""fast_p: of each problem the best candidate counts, and a win inside the noise is none."""

from kernelwright.core.bench import Comparison
from kernelwright.core.fast_p import compute_fast_p_curve
from kernelwright.core.suite_run import CaseOutcome
from kernelwright.core.verdict import Reason, Verdict


def outcome(problem, low=None, ratio=None, high=None, *, accepted=True):
    verdict = Verdict(
        accepted=accepted,
        reason=None if accepted else Reason(code="inaccurate", detail=""),
        problem=problem,
        candidate="c",
        device="cpu",
        input_sets=12,
        golden="",
    )
    compared = ()
    if ratio:
        about = {"verdict": "FASTER", "speedup": ratio, "low": low, "high": high, "pairs": 7, "method": ""}
        compared = (Comparison(variant="candidate", baseline="eager", **about),)
    return CaseOutcome(problem=problem, candidate="c", verdict=verdict, comparisons=compared)


def counts(outcomes, p):
    point = next(one for one in compute_fast_p_curve(tuple(outcomes), "eager").points if one.p == p)
    return point.count_low, point.count, point.count_high


def test_right_is_enough_at_nought_even_where_nothing_was_timed():
    assert counts([outcome("a"), outcome("b", accepted=False)], 0.0) == (1, 1, 1)


def test_sure_is_an_interval_that_lies_beyond():
    assert counts([outcome("a", 1.6, 1.8, 2.1)], 1.5) == (1, 1, 1)
    assert counts([outcome("a", 1.4, 1.8, 2.1)], 1.5) == (0, 1, 1)
    assert counts([outcome("a", 1.3, 1.4, 1.6)], 1.5) == (0, 0, 1)
    assert counts([outcome("a", 1.1, 1.2, 1.3)], 1.5) == (0, 0, 0)


def test_a_hair_faster_is_no_win():
    assert counts([outcome("a", 1.005, 1.01, 1.015)], 1.0) == (0, 1, 1)
    assert counts([outcome("a", 1.03, 1.04, 1.05)], 1.0) == (1, 1, 1)


def test_fast_and_wrong_counts_for_nothing():
    assert counts([outcome("a", 9.0, 9.5, 9.9, accepted=False)], 0.5) == (0, 0, 0)


def test_of_several_candidates_the_best_counts_once():
    several = [outcome("a", 1.1, 1.2, 1.3), outcome("a", 2.1, 2.2, 2.3), outcome("b", 0.5, 0.6, 0.7)]
    assert counts(several, 2.0) == (1, 1, 1)
    assert compute_fast_p_curve(tuple(several), "eager").num_problems == 2
