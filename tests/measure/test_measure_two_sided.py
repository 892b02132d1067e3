"""Which of two clocks is believed, and when one is called a liar."""

import pytest

from kernelwright.measure.two_sided import TwoSided, Window

EMPTY = [Window(20.0, 25.0, 30.0 + at % 3) for at in range(12)]


def seen(*times_us):
    return [Window(time - 15.0, time - 5.0, time) for time in times_us]


def test_a_claim_that_the_judge_saw_too_stands():
    clocks = TwoSided.of([100.0] * 6, seen(*[134.0] * 6), EMPTY)
    assert clocks.agrees
    assert not clocks.lies
    assert clocks.time_us == 100.0


def test_a_claim_that_is_too_small_gives_way_to_the_judges_clock():
    clocks = TwoSided.of([80.0] * 6, seen(*[144.0] * 6), EMPTY)
    assert not clocks.agrees
    assert not clocks.lies, "a fifth less may be honest noise"
    assert clocks.time_us == pytest.approx(113.0)


def test_a_claim_of_more_than_the_judge_saw_pass_does_not_stand():
    assert not TwoSided.of([200.0] * 6, seen(*[144.0] * 6), EMPTY).agrees


def test_who_looks_late_contradicts_nobody():
    """The judge slept between 60 and 200 us: whatever lies between may be so."""
    clocks = TwoSided.of([100.0] * 6, [Window(60.0, 200.0, 210.0)] * 6, EMPTY)
    assert clocks.agrees


def test_a_claim_of_nothing_is_a_lie():
    assert TwoSided.of([0.1] * 6, seen(*[1000.0] * 6), EMPTY).lies


def test_waiting_for_a_processor_makes_nobody_a_liar():
    windows = [Window(1500.0, 1510.0, 1520.0, queued_us=1420.0)] * 8
    assert not TwoSided.of([100.0] * 8, windows, EMPTY).lies


def test_one_slow_look_makes_nobody_a_liar():
    """The judge lost the processor in half of the calls: what it saw unfinished is what counts."""
    windows = [Window(90.0, 1490.0, 1500.0), Window(90.0, 130.0, 140.0)] * 4
    assert not TwoSided.of([100.0] * 8, windows, EMPTY).lies


def test_what_is_shorter_than_the_noise_cannot_be_called_a_lie():
    assert not TwoSided.of([1.0] * 6, seen(*[45.0] * 6), EMPTY).lies


def test_few_calls_say_nothing():
    with pytest.raises(ValueError, match="4 calls"):
        TwoSided.of([1.0] * 4, seen(*[1.0] * 4), EMPTY)
