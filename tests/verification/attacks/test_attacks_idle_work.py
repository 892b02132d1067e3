"""Memory that is touched between calls."""

from collections.abc import Sequence

from kernelwright.measure.clock_agreement import TimedCall
from kernelwright.verification.attacks.idle_work import find_idle_work


def calls(faults: Sequence[int]) -> list[TimedCall]:
    return [TimedCall(0.0, 1.0, 1.0, idle_faults=count) for count in faults]


def test_pages_of_the_outputs_touched_before_every_call_or_at_once_are_found():
    null = calls([500, 0, 1, 0])
    assert not find_idle_work(calls([900, 0, 2, 0, 1]), null, 1 << 21)
    reason = find_idle_work(calls([0, 512, 512, 512]), null, 1 << 21)
    assert reason and reason.code == "false-time"
    assert find_idle_work(calls([0, 0, 0, 3072, 0, 0, 0]), null, 1 << 21)
    assert not find_idle_work(calls([0, 512, 512, 512]), null, 1 << 26)


def test_what_null_calls_touch_too_is_not_the_candidates():
    assert not find_idle_work(calls([0, 512, 512]), calls([0, 500, 500]), 1 << 20)
    assert not find_idle_work(calls([512]), calls([0, 0]), 1 << 20)
