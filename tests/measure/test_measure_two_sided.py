"""Which of two clocks is believed, and when one is called a liar."""

import pytest

from kernelwright.measure.two_sided import TwoSided, Window

EMPTY = [Window(30.0 + at % 3, 20.0) for at in range(12)]


def seen(*times_us):
    return [Window(time, time - 5.0) for time in times_us]


def test_a_claim_that_the_judge_saw_too_stands():
    clocks = TwoSided.of([100.0] * 6, seen(*[134.0] * 6), EMPTY)
    assert clocks.agrees
    assert not clocks.lies
    assert clocks.time_us == 100.0


def test_a_claim_that_is_too_small_gives_way_to_the_judges_clock():
    clocks = TwoSided.of([80.0] * 6, seen(*[134.0] * 6), EMPTY)
    assert not clocks.agrees
    assert not clocks.lies, "a fifth less may be honest noise"
    assert clocks.time_us == pytest.approx(103.0)


def test_a_claim_of_nothing_is_a_lie():
    assert TwoSided.of([0.1] * 6, seen(*[1000.0] * 6), EMPTY).lies


def test_one_slow_look_makes_nobody_a_liar():
    """The judge lost the processor in half of the calls: what it saw unfinished is what counts."""
    windows = [Window(1500.0, 90.0), Window(140.0, 90.0)] * 4
    assert not TwoSided.of([100.0] * 8, windows, EMPTY).lies


def test_what_is_shorter_than_the_noise_cannot_be_called_a_lie():
    assert not TwoSided.of([1.0] * 6, seen(*[45.0] * 6), EMPTY).lies


def test_few_calls_say_nothing():
    with pytest.raises(ValueError, match="4 calls"):
        TwoSided.of([1.0] * 4, seen(*[1.0] * 4), EMPTY)
