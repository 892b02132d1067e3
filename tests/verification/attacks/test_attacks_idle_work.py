"""Memory that is touched, and computations that are done, between calls."""

from collections.abc import Sequence

from kernelwright.measure.clock_agreement import TimedCall
from kernelwright.verification.attacks.idle_work import find_computing, find_touched_memory


def calls(faults: Sequence[int]) -> list[TimedCall]:
    return [TimedCall(0.0, 1.0, 1.0, idle_faults=count) for count in faults]


def test_pages_of_the_outputs_touched_before_every_call_or_at_once_are_found():
    null = calls([500, 0, 1, 0])
    assert not find_touched_memory(calls([900, 0, 2, 0, 1]), null, 1 << 21)
    reason = find_touched_memory(calls([0, 512, 512, 512]), null, 1 << 21)
    assert reason and reason.code == "false-time"
    assert find_touched_memory(calls([0, 0, 0, 3072, 0, 0, 0]), null, 1 << 21)
    assert not find_touched_memory(calls([0, 512, 512, 512]), null, 1 << 26)


def test_what_null_calls_touch_too_is_not_the_candidates():
    assert not find_touched_memory(calls([0, 512, 512]), calls([0, 500, 500]), 1 << 20)
    assert not find_touched_memory(calls([512, 512]), calls([0, 0]), 1 << 20)


def test_memory_in_huge_pages_is_found_by_the_growth_of_the_process():
    null = [TimedCall(0.0, 1.0, 1.0)] * 5
    grows = [TimedCall(0.0, 1.0, 1.0, idle_faults=2, idle_growth_bytes=4 << 20)] * 5
    assert find_touched_memory(grows, null, 4 << 20)
    assert not find_touched_memory(grows, null, 32 << 20)
    assert not find_touched_memory([*grows[:2], *null[:3]], null, 4 << 20), "most calls do not"


def computing(times_us: Sequence[float]) -> list[TimedCall]:
    return [TimedCall(0.0, 4000.0, 4000.0, idle_cpu_us=one) for one in times_us]


def test_computing_before_every_call_is_found():
    null = computing([10.0] * 8)
    assert find_computing(computing([1500.0] * 8), null, 0)
    assert not find_computing(computing([900.0] * 8), null, 0), "less than a quarter of a call"
    assert not find_computing(computing([1500.0] * 8), null, 10), "a worker describes parameters"
    assert not find_computing(computing([50.0] * 4 + [4000.0] * 4), null, 0), "the worker waited for the verifier"
    assert not find_computing(computing([1100.0] * 8), computing([0.0] * 6 + [4000.0] * 2), 0), "counted at ticks"


def test_more_calls_decide_unless_it_is_certain():
    null, few, many, busy = (computing([time_us] * 8) for time_us in (10.0, 1500.0, 4000.0, 1200.0))
    assert not find_computing(few, null, 0, repeated=null)
    assert find_computing(few, null, 0, repeated=busy)
    assert find_computing(many, null, 0, repeated=null), "a candidate may notice the further calls"
