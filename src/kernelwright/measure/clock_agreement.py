"""Compare two clocks for one call: the self-reported time of the process that runs it, and the verifier's own.

The verifier's interval includes the overhead of starting and ending a call, which null calls measure. Neither clock is
reliable alone: one is in an untrusted process, the other includes the time while the CPU runs other processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

AGREEMENT_SHARE, AGREEMENT_US = 0.10, 2.0
"""Clocks agree if they differ by at most the larger of these, or by the spread of the null calls if that is larger."""
UNDERREPORT_SHARE, UNDERREPORT_US = 0.5, 20.0
"""A claimed time is false if it is below this share of the external minimum, and by more than this many us."""
MIN_CALLS = 5
MIN_OBSERVED_CALLS = 3
"""Number of calls that the verifier must have observed while running before it rejects a claimed time: on a busy
machine it sleeps through some calls."""
MAX_UNCERTAINTY = 0.1
"""Share of the external time up to which the worker's own clock may correct it."""
MIN_TIME_US = 0.001
"""Smallest time that is reported."""
TIME_SLICE_US = 500.0
"""Shorter than a process's time slice on a shared device, longer than a null call on an exclusive one."""


@dataclass(frozen=True)
class TimedCall:
    """One call on both clocks, in microseconds; external times start when the candidate could first read its inputs.

    Attributes:
        last_running_us: until the verifier last observed the call unfinished.
        completed_us: until the verifier observed the completion status.
        outputs_read_us: until samples of all outputs were read as well.
        queued_us: the part of it that the process waited for a CPU.
        claimed_us: time reported by the worker.
        input_write_us: duration of writing the inputs to a device just before; longer if the device is time-sliced.
        idle_faults: page faults of the process between the end of the call before and this one.
        idle_growth_bytes: by how much its memory grew in that time.
        idle_cpu_us: for how long at least its first thread computed in that time.
    """

    last_running_us: float
    completed_us: float
    outputs_read_us: float
    queued_us: float = 0.0
    claimed_us: float = 0.0
    input_write_us: float = 0.0
    idle_faults: int = 0
    idle_growth_bytes: int = 0
    idle_cpu_us: float = 0.0


@dataclass(frozen=True)
class ClockComparison:
    """Median time of a call on both clocks, each less the time of a null call on that clock.

    Attributes:
        claimed_us: time on the clock of the process that ran it.
        external_us: time on the verifier's clock. The queue time of null calls is subtracted, that of the candidate is
            not, because a candidate can keep its own CPU busy.
        external_low_us, external_high_us: bounds of the external time, from the times of the verifier's polls.
        elapsed_us: elapsed time on the verifier's clock; of the shortest calls if the device is time-sliced.
        is_exclusive: whether enough calls ran while no other process used the device.
        null_iqr_us: interquartile range of the null calls on the verifier's clock.
        observed_calls: number of calls that the verifier observed while running.
        observed_claim_us: claimed time of these calls.
        external_min_us: external minimum of these calls: the larger of their lower quartile, and the claimed time plus
            the smallest excess over it; less the upper quartile of the null calls. Queue time is excluded from both.
    """

    claimed_us: float
    external_us: float
    external_low_us: float
    external_high_us: float
    external_min_us: float
    elapsed_us: float
    null_iqr_us: float
    observed_claim_us: float
    observed_calls: int
    is_exclusive: bool = True

    @classmethod
    def from_calls(
        cls, calls: Sequence[TimedCall], null_calls: Sequence[TimedCall], *, disturbed: bool = False
    ) -> ClockComparison:
        """Compare the clocks.

        Args:
            disturbed: other processes may share the device, which neither clock shows. Only calls before which no other
                process had a time slice count, and the tenth percentile of these instead of the median.
        Raises:
            ValueError: fewer than five calls.
        """
        if len(calls) < MIN_CALLS:
            raise ValueError(f"comparing clocks needs at least {MIN_CALLS} calls, got {len(calls)}")
        exclusive = null_exclusive = True
        if disturbed:
            max_write_us = min(one.input_write_us for one in (*calls, *null_calls)) + TIME_SLICE_US
            calls, exclusive = _select_exclusive(calls, max_write_us)
            null_calls, null_exclusive = _select_exclusive(null_calls, max_write_us)
        null_completed = sorted(one.completed_us - one.queued_us for one in null_calls)
        null_read = sorted(one.outputs_read_us - one.queued_us for one in null_calls)
        unfinished = sorted(one.last_running_us for one in calls)
        null_claim_us = median(one.claimed_us for one in null_calls)
        claimed_us = max(0.0, median(one.claimed_us for one in calls) - null_claim_us)
        observed = [one for one in calls if one.last_running_us > 0] or calls
        observed_claim_us = max(0.0, median(one.claimed_us for one in observed) - null_claim_us)
        running = sorted(one.last_running_us - one.queued_us for one in observed)
        # Interference lengthens some calls and not others; time missing from a false claim is missing in every call.
        unreported_us = min(one.last_running_us - one.queued_us - one.claimed_us for one in observed)
        low_us = median(unfinished) - median(null_completed)
        # Several threads may have queued at once, so queue time can exceed the duration of the call.
        overhead_us = max(_quantile(null_read, 0.75), min(one.outputs_read_us for one in null_calls))
        min_us = max(_quantile(running, 0.25), observed_claim_us + unreported_us) - overhead_us
        elapsed_us = median(one.outputs_read_us for one in calls) - median(null_read)
        external_us = max(0.0, elapsed_us)
        if disturbed:
            null_us = median(null_read) if null_exclusive else min(median(null_read), TIME_SLICE_US)
            elapsed_us = _quantile(sorted(one.outputs_read_us for one in calls), 0.1) - null_us
            low_us = _quantile(unfinished, 0.1) - _quantile(null_completed, 0.1)
            min_us = _quantile(running, 0.1) - null_us
        return cls(
            claimed_us=claimed_us,
            external_us=external_us,
            external_low_us=max(0.0, low_us),
            external_high_us=median(one.completed_us for one in calls),
            external_min_us=max(0.0, min_us),
            elapsed_us=max(0.0, elapsed_us),
            null_iqr_us=_quantile(null_completed, 0.75) - _quantile(null_completed, 0.25),
            observed_claim_us=observed_claim_us,
            observed_calls=sum(one.last_running_us > 0 for one in calls),
            is_exclusive=exclusive,
        )

    @property
    def agrees(self) -> bool:
        """Whether the claimed time is accepted, being the finer of the two clocks.

        It must be within the external bounds; as the upper one is loose if the verifier polled late, it must also be at
        least half of the elapsed time.
        """
        if not self.is_exclusive:
            return False
        if self.claimed_us < UNDERREPORT_SHARE * self.elapsed_us - max(UNDERREPORT_US, self.null_iqr_us):
            return False
        noise_us = min(self.null_iqr_us, UNDERREPORT_SHARE * self.external_us)
        tolerance_us = max(AGREEMENT_SHARE * max(self.claimed_us, self.external_us), AGREEMENT_US, noise_us)
        return self.external_low_us - tolerance_us <= self.claimed_us <= self.external_high_us + tolerance_us

    @property
    def underreports(self) -> bool:
        """Whether the claimed time is too small to be correct."""
        is_conclusive = self.is_exclusive and self.observed_calls >= MIN_OBSERVED_CALLS
        return (
            is_conclusive
            and self.observed_claim_us < UNDERREPORT_SHARE * self.external_min_us
            and self.external_min_us - self.observed_claim_us > UNDERREPORT_US
        )

    @property
    def time_us(self) -> float:
        """The claimed time if the clocks agree, else the external time."""
        return self.claimed_us if self.agrees else self.external_us


def null_spread_us(null_calls: Sequence[TimedCall], share: float = 0.5) -> float:
    """How much longer than the shortest null call this share of them takes: times below it cannot be compared."""
    times_us = sorted(one.outputs_read_us - one.queued_us for one in null_calls)
    return _quantile(times_us, share) - times_us[0]


def trusted_time_us(timed_call: TimedCall, null_calls: Sequence[TimedCall]) -> float:
    """The time by the external clock. The worker's own, which is finer, counts within the uncertainty of the external
    one, and only where that is a small share of it.

    Of a series that was never seen running only the end is known: then the whole time until it was seen counts.
    """
    low, null_us, high = quantiles(map(_midpoint_us, null_calls), n=4)
    external_us, uncertainty_us = _midpoint_us(timed_call) - null_us, high - low
    if timed_call.last_running_us:
        uncertainty_us = max(uncertainty_us, (timed_call.completed_us - timed_call.last_running_us) / 2)
    else:
        external_us = timed_call.completed_us - median(one.completed_us for one in null_calls)
    external_us = max(MIN_TIME_US, external_us)
    if uncertainty_us > MAX_UNCERTAINTY * external_us:
        return external_us
    claimed_us = timed_call.claimed_us - median(one.claimed_us for one in null_calls)
    return min(max(claimed_us, external_us - uncertainty_us), external_us + uncertainty_us)


def _midpoint_us(timed_call: TimedCall) -> float:
    """Midpoint between the last poll that saw the call running and the first that saw it complete."""
    return (timed_call.last_running_us + timed_call.completed_us) / 2


def _select_exclusive(calls: Sequence[TimedCall], max_write_us: float) -> tuple[Sequence[TimedCall], bool]:
    """The calls before which no other process had a time slice, and whether they are enough; otherwise all calls."""
    selected = [one for one in calls if one.input_write_us <= max_write_us]
    return (selected, True) if len(selected) >= MIN_CALLS else (calls, False)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value at this quantile of a sorted sequence."""
    return ordered[int(share * len(ordered))]
