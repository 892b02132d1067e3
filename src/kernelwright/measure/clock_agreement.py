"""One call, two clocks: what the process that runs it says, and what its judge sees from outside.

The judge's window holds the call and what it costs to begin and end one; calls that compute nothing say how much that
is. Neither clock can be believed alone: one lies in a stranger's process, the other sees a processor change hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

AGREEMENT_SHARE, AGREEMENT_US = 0.10, 2.0
"""Clocks agree that are this near, or as near as empty calls are to each other, whichever is more."""
UNDERREPORT_SHARE, UNDERREPORT_US = 0.5, 20.0
"""A claim is a lie that is less than this share of what was seen at the least, and by more than this."""
MIN_CALLS = 5
MIN_OBSERVED_CALLS = 3
"""Of so many calls the judge must have seen that they ran, before it contradicts a claim: on a busy machine it sleeps
through some."""
TIME_SLICE_US = 500.0
"""Less than a process has a device to itself, and more than an empty call takes on one that nobody else has."""


@dataclass(frozen=True)
class TimedCall:
    """A call on both clocks, in microseconds; on the judge's from the first that the candidate could see of its inputs.

    Attributes:
        last_running_us: until the judge last saw it unfinished.
        completed_us: until the judge saw that it says it is done.
        outputs_read_us: until pieces of all outputs were read as well.
        queued_us: of that, what it waited for a processor that others had.
        claimed_us: what the worker says that it took.
        input_write_us: what it took to write the inputs just before, on a device: longer where others have turns of it.
    """

    last_running_us: float
    completed_us: float
    outputs_read_us: float
    queued_us: float = 0.0
    claimed_us: float = 0.0
    input_write_us: float = 0.0


@dataclass(frozen=True)
class ClockComparison:
    """The median time of a call by both clocks, each less what an empty call takes by it.

    Attributes:
        claimed_us: by the clock in the process that ran it.
        external_us: by the judge's. What empty calls were queued for is left out of them; of the candidate's own it is
            not, because a candidate can be the one who keeps its processor busy.
        external_low_us, external_high_us: between these the judge's clock leaves it, by when it looked.
        elapsed_us: what it took by the judge's clock; of the shortest windows, where others take turns.
        is_exclusive: whether there were calls enough before which nobody else had a turn.
        null_iqr_us: how far empty calls lie apart on the judge's, half of them.
        observed_calls: how many calls the judge saw while they ran.
        observed_claim_us: the claim of these.
        external_min_us: what the judge's clock shows of these at the least: all but the shortest quarter, or the claim
            and what every one took beyond it; less what three in four empty calls take; without what either was queued
            for.
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
        """Weighs the clocks.

        Args:
            disturbed: others may take turns with the candidate, which no clock sees: windows count before which nobody
                did, and of these the shortest, the tenth that is left when the judge's own slips are passed over.
        Raises:
            ValueError: fewer than five calls.
        """
        if len(calls) < MIN_CALLS:
            raise ValueError(f"{len(calls)} calls; {MIN_CALLS} at least")
        calm = calm_empty = True
        if disturbed:
            quiet_us = min(one.input_write_us for one in (*calls, *null_calls)) + TIME_SLICE_US
            calls, calm = _select_exclusive(calls, quiet_us)
            null_calls, calm_empty = _select_exclusive(null_calls, quiet_us)
        seen = sorted(one.completed_us - one.queued_us for one in null_calls)
        nothing = sorted(one.outputs_read_us - one.queued_us for one in null_calls)
        unfinished = sorted(one.last_running_us for one in calls)
        nothing_said_us = median(one.claimed_us for one in null_calls)
        claimed_us = max(0.0, median(one.claimed_us for one in calls) - nothing_said_us)
        while_it_ran = [one for one in calls if one.last_running_us > 0] or calls
        said_us = max(0.0, median(one.claimed_us for one in while_it_ran) - nothing_said_us)
        working = sorted(one.last_running_us - one.queued_us for one in while_it_ran)
        # A busy machine lengthens some windows and not others; what a lie leaves unsaid is in all of them.
        unsaid_us = min(one.last_running_us - one.queued_us - one.claimed_us for one in while_it_ran)
        low_us = median(unfinished) - median(seen)
        # Several threads may have queued at once, for longer than the call took.
        empty_us = max(_quantile(nothing, 0.75), min(one.outputs_read_us for one in null_calls))
        least_us = max(_quantile(working, 0.25), said_us + unsaid_us) - empty_us
        taken_us = median(one.outputs_read_us for one in calls) - median(nothing)
        external_us = max(0.0, taken_us)
        if disturbed:
            nothing_us = median(nothing) if calm_empty else min(median(nothing), TIME_SLICE_US)
            taken_us = _quantile(sorted(one.outputs_read_us for one in calls), 0.1) - nothing_us
            low_us, least_us = _quantile(unfinished, 0.1) - _quantile(seen, 0.1), _quantile(working, 0.1) - nothing_us
        return cls(
            claimed_us=claimed_us,
            external_us=external_us,
            external_low_us=max(0.0, low_us),
            external_high_us=median(one.completed_us for one in calls),
            external_min_us=max(0.0, least_us),
            elapsed_us=max(0.0, taken_us),
            null_iqr_us=_quantile(seen, 0.75) - _quantile(seen, 0.25),
            observed_claim_us=said_us,
            observed_calls=sum(one.last_running_us > 0 for one in calls),
            is_exclusive=calm,
        )

    @property
    def agrees(self) -> bool:
        """Whether the claim may stand: it is the finer of the two clocks. Where the judge looked late, it has to be a
        good part of what the call may have taken."""
        if not self.is_exclusive:
            return False
        if self.claimed_us < UNDERREPORT_SHARE * self.elapsed_us - max(UNDERREPORT_US, self.null_iqr_us):
            return False
        unsure_us = min(self.null_iqr_us, UNDERREPORT_SHARE * self.external_us)
        near_us = max(AGREEMENT_SHARE * max(self.claimed_us, self.external_us), AGREEMENT_US, unsure_us)
        return self.external_low_us - near_us <= self.claimed_us <= self.external_high_us + near_us

    @property
    def underreports(self) -> bool:
        """Whether no honest clock could have claimed so little."""
        told_from_noise = self.is_exclusive and self.observed_calls >= MIN_OBSERVED_CALLS
        return (
            told_from_noise
            and self.observed_claim_us < UNDERREPORT_SHARE * self.external_min_us
            and self.external_min_us - self.observed_claim_us > UNDERREPORT_US
        )

    @property
    def time_us(self) -> float:
        """The claim where the judge's clock agrees, else the judge's."""
        return self.claimed_us if self.agrees else self.external_us


def null_spread_us(null_calls: Sequence[TimedCall], share: float = 0.5) -> float:
    """How much longer than the shortest this share of them take: what nobody below it can be judged by."""
    took = sorted(one.outputs_read_us - one.queued_us for one in null_calls)
    return _quantile(took, share) - took[0]


def _select_exclusive(calls: Sequence[TimedCall], max_write_us: float) -> tuple[Sequence[TimedCall], bool]:
    """Those before which nobody else had a turn, and whether they are enough; else all."""
    found = [one for one in calls if one.input_write_us <= max_write_us]
    return (found, True) if len(found) >= MIN_CALLS else (calls, False)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The number below which that share of them lies."""
    return ordered[int(share * len(ordered))]
