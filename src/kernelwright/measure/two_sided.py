"""One call, two clocks: what the process that runs it says, and what its judge sees from outside.

The judge's window holds the call and what it costs to begin and end one; calls that compute nothing say how much that
is. Neither clock can be believed alone: one lies in a stranger's process, the other sees a processor change hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

AGREES_SHARE, AGREES_US = 0.10, 2.0
"""Clocks agree that are this near, whichever is more."""
LIES_SHARE, LIES_US = 0.5, 20.0
"""A claim is a lie that is less than this share of what was seen at the least, and by more than this."""
LEAST_CALLS = 5


@dataclass(frozen=True)
class TwoSided:
    """The median time of a call by both clocks.

    Attributes:
        claimed_us: by the clock in the process that ran it.
        judged_us: by the judge's, less what an empty call takes.
        least_us: what the judge's clock shows at the least: of the calls all but the shortest quarter, less more than
            what three in four empty calls take.
    """

    claimed_us: float
    judged_us: float
    least_us: float

    @classmethod
    def of(cls, claimed_us: Sequence[float], windows_us: Sequence[float], empty_us: Sequence[float]) -> TwoSided:
        """Raises:
        ValueError: fewer than five calls.
        """
        if len(windows_us) < LEAST_CALLS:
            raise ValueError(f"{len(windows_us)} calls; {LEAST_CALLS} at least")
        empty = sorted(empty_us)
        return cls(
            median(claimed_us),
            max(0.0, median(windows_us) - median(empty)),
            max(0.0, sorted(windows_us)[len(windows_us) // 4] - empty[3 * len(empty) // 4]),
        )

    @property
    def agrees(self) -> bool:
        """Whether the claim may stand: it is the finer of the two clocks."""
        near_us = max(AGREES_SHARE * max(self.claimed_us, self.judged_us), AGREES_US)
        return abs(self.claimed_us - self.judged_us) <= near_us

    @property
    def lies(self) -> bool:
        """Whether no honest clock could have claimed so little."""
        return self.claimed_us < LIES_SHARE * self.least_us and self.least_us - self.claimed_us > LIES_US

    @property
    def time_us(self) -> float:
        """The claim where the judge's clock agrees, else the judge's."""
        return self.claimed_us if self.agrees else self.judged_us
