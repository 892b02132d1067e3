"""What `kw judge-check` answers: every sample of the corpus, what the judge should say of it, and what it said."""

from __future__ import annotations

from typing import Literal

from kernelwright.core.records import Device, Record
from kernelwright.core.throughput import Throughput


class SampleOutcome(Record, frozen=True, kw_only=True):
    """One sample in one round.

    `expected` holds the codes of which any one may reject it, and nothing for an honest one; `got` is the code that
    did, or empty.
    """

    name: str
    kind: Literal["legitimate", "cheat"]
    description: str
    problem: str
    expected: tuple[str, ...]
    got: str
    detail: str = ""
    time_s: float = 0.0

    @property
    def is_correct(self) -> bool:
        return self.got in self.expected if self.expected else not self.got


class CorpusReport(Record, frozen=True, kw_only=True):
    """Every sample that this device can run, in every round; `skipped` names those that it cannot."""

    device: Device
    rounds: int
    sandbox: tuple[str, ...]
    outcomes: tuple[SampleOutcome, ...]
    throughput: Throughput
    skipped: tuple[str, ...] = ()

    @property
    def wrong_outcomes(self) -> tuple[SampleOutcome, ...]:
        return tuple(one for one in self.outcomes if not one.is_correct)


class SampleCounts(Record, frozen=True, kw_only=True):
    """One sample in all rounds: `verdict_counts` counts the codes that rejected it, and as "" how often it was
    accepted; `wrong_verdicts` tells of every verdict that was wrong."""

    name: str
    kind: Literal["legitimate", "cheat"]
    description: str
    problem: str
    expected: tuple[str, ...]
    verdict_counts: dict[str, int]
    slowest_s: float
    wrong_verdicts: tuple[str, ...] = ()

    @property
    def num_wrong(self) -> int:
        right = self.expected or ("",)
        return sum(times for code, times in self.verdict_counts.items() if code not in right)
