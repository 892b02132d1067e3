import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelwright.core.bench import EQUIVALENCE_MARGIN
from kernelwright.measure.statistics import classify_ratio, compare_processes, compare_rounds, median_interval

times = st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=5, max_size=40)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (1.03, 1.2, "FASTER"),
        (1.01, 1.2, "UNCLEAR"),
        (0.99, 1.01, "SAME"),
        (0.9, 0.97, "SLOWER"),
        (0.9, 1.1, "UNCLEAR"),
        (1.02, 1.5, "UNCLEAR"),
    ],
)
def test_a_claim_needs_the_whole_interval(low, high, says):
    assert classify_ratio(low, high) == says


@settings(max_examples=100, deadline=None)
@given(samples=times)
def test_the_interval_holds_the_median(samples):
    low, high = median_interval(samples)
    assert low <= sorted(samples)[len(samples) // 2] <= high or low <= sorted(samples)[(len(samples) - 1) // 2] <= high


@settings(max_examples=100, deadline=None)
@example(a=[1.0, 1.0, 1.0, 1.0, 607.0], factor=1.02)
@given(a=times, factor=st.floats(min_value=0.5, max_value=2.0))
def test_swapping_the_variants_turns_the_verdict_round(a, factor):
    b = [t * factor for t in a]
    for compare in (compare_rounds, compare_processes):
        one, other = compare("a", a, "b", b), compare("b", b, "a", a)
        assert math.isclose(one.speedup * other.speedup, 1, rel_tol=1e-9)
        turned = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
        edge = math.log1p(EQUIVALENCE_MARGIN)
        assert (
            any(math.isclose(abs(math.log(end)), edge, rel_tol=1e-9) for end in (one.low, one.high))
            or turned.get(one.verdict, one.verdict) == other.verdict
        )


def test_swapped_variants_agree_whatever_the_noise():
    noise = random.Random(3)
    turned = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
    for count in range(5, 60):
        a, b = ([100 * math.exp(noise.gauss(shift, 0.05)) for _ in range(count)] for shift in (0.0, 0.06))
        one, other = compare_rounds("a", a, "b", b), compare_rounds("b", b, "a", a)
        assert math.isclose(one.low * other.high, 1, rel_tol=1e-9)
        assert turned.get(one.verdict, one.verdict) == other.verdict


def test_the_interval_of_few_samples_is_their_range():
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    # Twelve at 95 %: P(Bin(12, 1/2) <= 2) = 0.0193, of 3 it would be 0.073; so the third from either end.
    assert median_interval([float(i) for i in range(1, 13)]) == (3.0, 10.0)


def test_a_constant_factor_is_seen_through_noise_that_both_variants_share():
    noise = random.Random(1)
    a = [100 * math.exp(noise.gauss(0, 0.3)) for _ in range(40)]
    found = compare_rounds("a", a, "b", [1.1 * t for t in a])
    assert (found.verdict, round(found.speedup, 6)) == ("FASTER", 1.1)


def test_noise_alone_makes_no_claim():
    noise, claims = random.Random(2), 0
    for _ in range(300):
        a, b = ([100 * math.exp(noise.gauss(0, 0.02)) for _ in range(7)] for _ in range(2))
        claims += compare_processes("a", a, "b", b).verdict in ("FASTER", "SLOWER")
    assert claims <= 3, f"{claims} of 300"


def test_four_process_pairs_are_too_few():
    with pytest.raises(ValueError, match="at least 5 pairs"):
        compare_processes("a", [1.0] * 4, "b", [1.0] * 4)


def test_the_margin_is_two_per_cent():
    assert EQUIVALENCE_MARGIN == 0.02
