"""Which of two clocks is believed, and when one is called a liar."""

from dataclasses import replace

import pytest

from kernelwright.measure.clock_agreement import (
    MAX_UNCERTAINTY,
    ClockComparison,
    TimedCall,
    null_spread_us,
    trusted_time_us,
)

EMPTY = [TimedCall(20.0, 25.0, 30.0 + at % 3) for at in range(12)]


def seen(claimed_us, *times_us):
    return [TimedCall(time - 15.0, time - 5.0, time, claimed_us=claimed_us) for time in times_us]


def test_a_claim_that_the_judge_saw_too_stands():
    clocks = ClockComparison.from_calls(seen(100.0, *[134.0] * 6), EMPTY)
    assert clocks.agrees
    assert not clocks.underreports
    assert clocks.time_us == 100.0


def test_a_claim_that_is_too_small_gives_way_to_the_judges_clock():
    clocks = ClockComparison.from_calls(seen(80.0, *[144.0] * 6), EMPTY)
    assert not clocks.agrees
    assert not clocks.underreports, "a fifth less may be honest noise"
    assert clocks.time_us == pytest.approx(113.0)


def test_a_claim_of_more_than_the_judge_saw_pass_does_not_stand():
    assert not ClockComparison.from_calls(seen(200.0, *[144.0] * 6), EMPTY).agrees


def test_who_looks_late_contradicts_nobody():
    """The judge slept between 60 and 200 us: whatever lies between may be so."""
    clocks = ClockComparison.from_calls([TimedCall(60.0, 200.0, 210.0, claimed_us=100.0)] * 6, EMPTY)
    assert clocks.agrees


def test_who_looks_too_late_believes_no_claim_of_nearly_nothing():
    blind = ClockComparison.from_calls([TimedCall(0.0, 5000.0, 5100.0, claimed_us=70.0)] * 6, EMPTY)
    assert not blind.underreports, "it was not seen"
    assert not blind.agrees
    assert blind.time_us > 5000.0


def test_a_claim_of_nothing_is_a_lie():
    assert ClockComparison.from_calls(seen(0.1, *[1000.0] * 6), EMPTY).underreports


def busy(beyond_us, *claims_us):
    """Calls of any length, that take so much longer than each of them claims."""
    return [TimedCall(one + beyond_us, one + beyond_us + 5.0, one + beyond_us + 10.0, 0.0, one) for one in claims_us]


def test_a_lie_is_seen_on_a_busy_machine():
    """Claims differ as calls do; what is left unsaid is in all of them."""
    claims = [100.0] * 4 + [3000.0] * 8
    assert ClockComparison.from_calls(busy(4000.0, *claims), EMPTY).underreports
    assert not ClockComparison.from_calls(busy(20.0, *claims), EMPTY).underreports
    assert not ClockComparison.from_calls([*busy(4000.0, *claims[1:]), *busy(0.0, 4100.0)], EMPTY).underreports, (
        "one call says all of it"
    )


def test_waiting_for_a_processor_makes_nobody_a_liar():
    windows = [TimedCall(1500.0, 1510.0, 1520.0, queued_us=1420.0, claimed_us=100.0)] * 8
    assert not ClockComparison.from_calls(windows, EMPTY).underreports


def test_a_lie_is_seen_where_others_had_the_processor_in_empty_calls():
    empty = [*EMPTY[:6], *[TimedCall(3000.0, 3010.0, 3400.0, queued_us=3370.0)] * 6]
    assert ClockComparison.from_calls(seen(0.0, *[2500.0] * 6), empty).underreports
    assert not ClockComparison.from_calls(seen(100.0, *[134.0] * 6), empty).underreports


def test_threads_that_queued_for_longer_than_empty_calls_took_make_nobody_a_liar():
    """Taken from a machine with four busy processes on two cores."""
    empty = [TimedCall(2500.0, 2550.0, time, queued_us=time + 300.0) for time in (263.0, 2557.0, 3427.0, 3946.0)] * 3
    numbers = [(509.0, 190.0, 235.0), (408.0, 185.0, 251.0), (3949.0, 3460.0, 463.0), (0.0, 60.0, 276.0)]
    windows = [TimedCall(late, late + 90.0, late + 100.0, queued, claim) for late, queued, claim in numbers * 2]
    assert not ClockComparison.from_calls(windows, empty).underreports


def test_calls_that_the_judge_slept_through_hide_no_lie():
    """On a busy machine half of the calls are over before it looks."""
    blind = [TimedCall(0.0, 2600.0, 2620.0)] * 3
    assert ClockComparison.from_calls([*blind, *seen(0.0, *[2500.0] * 3)], EMPTY).underreports
    few = ClockComparison.from_calls([*blind, *blind, *seen(0.0, *[2500.0] * 2)], EMPTY)
    assert not few.underreports, "two calls are not enough to say so"
    assert few.observed_calls == 2


def test_calls_that_were_seen_are_held_against_their_own_claims():
    """Some calls are long, and only these were seen while they ran."""
    short = [TimedCall(0.0, 130.0, 140.0, claimed_us=100.0)] * 9
    assert not ClockComparison.from_calls([*short, *seen(2500.0, *[2540.0] * 3)], EMPTY).underreports


def test_one_slow_look_makes_nobody_a_liar():
    """The judge lost the processor in half of the calls: what it saw unfinished is what counts."""
    windows = [TimedCall(90.0, late - 10.0, late, claimed_us=100.0) for late in (1500.0, 140.0)] * 4
    assert not ClockComparison.from_calls(windows, EMPTY).underreports


def test_what_is_shorter_than_the_noise_cannot_be_called_a_lie():
    assert not ClockComparison.from_calls(seen(1.0, *[45.0] * 6), EMPTY).underreports


def test_both_clocks_are_less_what_an_empty_call_takes_by_them():
    empty = [TimedCall(20.0, 25.0, 30.0, claimed_us=2.0)] * 12
    assert ClockComparison.from_calls(seen(32.0, *[60.0] * 6), empty).time_us == 30.0


def test_clocks_agree_that_are_no_further_apart_than_empty_calls():
    scattered = [TimedCall(seen_us - 5.0, seen_us, seen_us) for seen_us in (10.0, 40.0) * 6]
    assert ClockComparison.from_calls(seen(20.0, *[90.0] * 6), scattered).null_iqr_us == 30.0
    assert ClockComparison.from_calls(seen(25.0, *[90.0] * 6), scattered).agrees
    assert not ClockComparison.from_calls(seen(25.0, *[90.0] * 6), EMPTY).agrees


def test_who_shares_a_device_is_known_by_its_shortest_windows():
    """Most windows hold turns of others, of some milliseconds."""
    windows = seen(100.0, *[134.0, 3000.0, 5000.0, 134.0, 7000.0, 3000.0, 9000.0, 134.0, 4000.0, 134.0, 5000.0, 6000.0])
    empty = [*EMPTY[:4], *seen(0.0, *[2500.0] * 8)]
    clocks = ClockComparison.from_calls(windows, empty, disturbed=True)
    assert clocks.agrees
    assert not clocks.underreports
    assert not ClockComparison.from_calls(windows, EMPTY).agrees, "where nobody shares it"
    assert ClockComparison.from_calls(windows, EMPTY, disturbed=True).time_us == 100.0, "and empty calls were calm"


def test_a_lie_is_seen_on_a_shared_device():
    windows = seen(4.0, *[4034.0, 6000.0, 5000.0] * 4)
    empty = [*EMPTY[:6], *seen(0.0, *[2500.0] * 6)]
    clocks = ClockComparison.from_calls(windows, empty, disturbed=True)
    assert clocks.underreports
    assert not clocks.agrees


def after(writing_us, windows):
    return [replace(one, input_write_us=writing_us) for one in windows]


def test_calls_before_which_others_had_the_device_say_nothing_of_a_clock():
    """Somebody's kernel ran through all of them, and through no empty call."""
    crowded = after(3000.0, seen(100.0, *[5000.0] * 12))
    clocks = ClockComparison.from_calls(crowded, after(90.0, EMPTY), disturbed=True)
    assert not clocks.is_exclusive
    assert not clocks.underreports
    assert not clocks.agrees, "nor can it be believed"
    quiet = ClockComparison.from_calls(
        [*crowded, *after(100.0, seen(100.0, *[134.0] * 6))], after(90.0, EMPTY), disturbed=True
    )
    assert quiet.is_exclusive
    assert quiet.agrees


def test_a_lie_is_seen_where_others_had_the_device_in_empty_calls_alone():
    windows, empty = after(90.0, seen(4.0, *[4034.0] * 12)), after(4000.0, seen(0.0, *[4500.0] * 12))
    assert ClockComparison.from_calls(windows, empty, disturbed=True).underreports


def test_few_calls_say_nothing():
    with pytest.raises(ValueError, match="at least 5 calls, got 4"):
        ClockComparison.from_calls(seen(1.0, *[1.0] * 4), EMPTY)


def test_empty_calls_between_which_others_had_the_device_lie_apart():
    calm, crowded = [*EMPTY[:6]], [*EMPTY[:3], *[TimedCall(20.0, 25.0, 2000.0)] * 6]
    assert null_spread_us(calm) <= 2.0
    assert null_spread_us(crowded) > 1000.0


@pytest.mark.parametrize("last_running_us", [0.0, 4990.0])
def test_a_series_that_claims_no_time_has_that_of_the_external_clock(last_running_us):
    nulls = [TimedCall(10.0, 20.0 + number, 30.0, claimed_us=1.0) for number in range(8)]
    series = TimedCall(last_running_us, 5000.0, 5010.0, claimed_us=0.0)
    assert trusted_time_us(series, nulls) >= (1 - MAX_UNCERTAINTY) * (5000.0 - 30.0)
