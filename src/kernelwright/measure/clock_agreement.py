"""One call, two clocks: what the process that runs it says, and what its judge sees from outside.

The judge's window holds the call and what it costs to begin and end one; calls that compute nothing say how much that
is. Neither clock can be believed alone: one lies in a stranger's process, the other sees a processor change hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

AGREES_SHARE, AGREES_US = 0.10, 2.0
"""Clocks agree that are this near, or as near as empty calls are to each other, whichever is more."""
LIES_SHARE, LIES_US = 0.5, 20.0
"""A claim is a lie that is less than this share of what was seen at the least, and by more than this."""
LEAST_CALLS = 5
LEAST_SEEN = 3
"""Of so many calls the judge must have seen that they ran, before it contradicts a claim: on a busy machine it sleeps
through some."""
TURN_US = 500.0
"""Less than a process has a device to itself, and more than an empty call takes on one that nobody else has."""


@dataclass(frozen=True)
class Window:
    """A call on both clocks, in microseconds; on the judge's from the first that the candidate could see of its inputs.

    Attributes:
        unfinished_us: until the judge last saw it unfinished.
        seen_us: until the judge saw that it says it is done.
        time_us: until pieces of all outputs were read as well.
        queued_us: of that, what it waited for a processor that others had.
        claimed_us: what the worker says that it took.
        writing_us: what it took to write the inputs just before, on a device: longer where others have turns of it.
    """

    unfinished_us: float
    seen_us: float
    time_us: float
    queued_us: float = 0.0
    claimed_us: float = 0.0
    writing_us: float = 0.0


@dataclass(frozen=True)
class TwoSided:
    """The median time of a call by both clocks, each less what an empty call takes by it.

    Attributes:
        claimed_us: by the clock in the process that ran it.
        judged_us: by the judge's. What empty calls were queued for is left out of them; of the candidate's own it is
            not, because a candidate can be the one who keeps its processor busy.
        low_us, high_us: between these the judge's clock leaves it, by when it looked.
        taken_us: what it took by the judge's clock; of the shortest windows, where others take turns.
        calm: whether there were calls enough before which nobody else had a turn.
        unsure_us: how far empty calls lie apart on the judge's, half of them.
        seen: how many calls the judge saw while they ran.
        said_us: the claim of these.
        least_us: what the judge's clock shows of these at the least: all but the shortest quarter, or the claim and
            what every one took beyond it; less what three in four empty calls take; without what either was queued for.
    """

    claimed_us: float
    judged_us: float
    low_us: float
    high_us: float
    least_us: float
    taken_us: float
    unsure_us: float
    said_us: float
    seen: int
    calm: bool = True

    @classmethod
    def of(cls, windows: Sequence[Window], empty: Sequence[Window], *, disturbed: bool = False) -> TwoSided:
        """Weighs the clocks.

        Args:
            disturbed: others may take turns with the candidate, which no clock sees: windows count before which nobody
                did, and of these the shortest, the tenth that is left when the judge's own slips are passed over.
        Raises:
            ValueError: fewer than five calls.
        """
        if len(windows) < LEAST_CALLS:
            raise ValueError(f"{len(windows)} calls; {LEAST_CALLS} at least")
        calm = calm_empty = True
        if disturbed:
            quiet_us = min(one.writing_us for one in (*windows, *empty)) + TURN_US
            windows, calm = _calm(windows, quiet_us)
            empty, calm_empty = _calm(empty, quiet_us)
        seen = sorted(one.seen_us - one.queued_us for one in empty)
        nothing = sorted(one.time_us - one.queued_us for one in empty)
        unfinished = sorted(one.unfinished_us for one in windows)
        nothing_said_us = median(one.claimed_us for one in empty)
        claimed_us = max(0.0, median(one.claimed_us for one in windows) - nothing_said_us)
        while_it_ran = [one for one in windows if one.unfinished_us > 0] or windows
        said_us = max(0.0, median(one.claimed_us for one in while_it_ran) - nothing_said_us)
        working = sorted(one.unfinished_us - one.queued_us for one in while_it_ran)
        # A busy machine lengthens some windows and not others; what a lie leaves unsaid is in all of them.
        unsaid_us = min(one.unfinished_us - one.queued_us - one.claimed_us for one in while_it_ran)
        low_us = median(unfinished) - median(seen)
        # Several threads may have queued at once, for longer than the call took.
        empty_us = max(_at(nothing, 0.75), min(one.time_us for one in empty))
        least_us = max(_at(working, 0.25), said_us + unsaid_us) - empty_us
        taken_us = median(one.time_us for one in windows) - median(nothing)
        judged_us = max(0.0, taken_us)
        if disturbed:
            nothing_us = median(nothing) if calm_empty else min(median(nothing), TURN_US)
            taken_us = _at(sorted(one.time_us for one in windows), 0.1) - nothing_us
            low_us, least_us = _at(unfinished, 0.1) - _at(seen, 0.1), _at(working, 0.1) - nothing_us
        return cls(
            claimed_us=claimed_us,
            judged_us=judged_us,
            low_us=max(0.0, low_us),
            high_us=median(one.seen_us for one in windows),
            least_us=max(0.0, least_us),
            taken_us=max(0.0, taken_us),
            unsure_us=_at(seen, 0.75) - _at(seen, 0.25),
            said_us=said_us,
            seen=sum(one.unfinished_us > 0 for one in windows),
            calm=calm,
        )

    @property
    def agrees(self) -> bool:
        """Whether the claim may stand: it is the finer of the two clocks. Where the judge looked late, it has to be a
        good part of what the call may have taken."""
        if not self.calm:
            return False
        if self.claimed_us < LIES_SHARE * self.taken_us - max(LIES_US, self.unsure_us):
            return False
        unsure_us = min(self.unsure_us, LIES_SHARE * self.judged_us)
        near_us = max(AGREES_SHARE * max(self.claimed_us, self.judged_us), AGREES_US, unsure_us)
        return self.low_us - near_us <= self.claimed_us <= self.high_us + near_us

    @property
    def lies(self) -> bool:
        """Whether no honest clock could have claimed so little."""
        told_from_noise = self.calm and self.seen >= LEAST_SEEN
        return told_from_noise and self.said_us < LIES_SHARE * self.least_us and self.least_us - self.said_us > LIES_US

    @property
    def time_us(self) -> float:
        """The claim where the judge's clock agrees, else the judge's."""
        return self.claimed_us if self.agrees else self.judged_us


def spread_us(empty: Sequence[Window], share: float = 0.5) -> float:
    """How much longer than the shortest this share of them take: what nobody below it can be judged by."""
    took = sorted(one.time_us - one.queued_us for one in empty)
    return _at(took, share) - took[0]


def _calm(windows: Sequence[Window], quiet_us: float) -> tuple[Sequence[Window], bool]:
    """Those before which nobody else had a turn, and whether they are enough; else all."""
    found = [one for one in windows if one.writing_us <= quiet_us]
    return (found, True) if len(found) >= LEAST_CALLS else (windows, False)


def _at(ordered: Sequence[float], share: float) -> float:
    """The number below which that share of them lies."""
    return ordered[int(share * len(ordered))]
