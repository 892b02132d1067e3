"""Records of `kw judge-check`: every sample of the corpus with its expected and its actual verdict."""

from __future__ import annotations

from typing import Literal

from kernelwright.core.record import Record
from kernelwright.core.throughput import Throughput
from kernelwright.core.timing import Device


class SampleOutcome(Record, frozen=True, kw_only=True):
    """One sample in one round.

    `expected` lists the rejection codes that count as correct; empty for a legitimate sample. `got` is the actual
    rejection code, empty if accepted.
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
    """Every sample that this device can run, in every round; `skipped` names the others."""

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
    """One sample over all rounds.

    `verdict_counts` maps each rejection code to its count, with "" for accepted; `wrong_verdicts` describes every
    wrong verdict.
    """

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
        expected = self.expected or ("",)
        return sum(count for code, count in self.verdict_counts.items() if code not in expected)
