"""The record of `kw why PROBLEM kernel.cu --device emulated`: what CUDA C++ asks of memory, counted on a CPU."""

from __future__ import annotations

from typing import Any

import msgspec

from kernelwright.core.records import Record


class MemoryAccess(Record, frozen=True, kw_only=True):
    """One place in a source that reaches memory. `transactions_per_request` counts what a request of one warp costs,
    32-byte sectors of global memory or passes over the banks of shared memory; `ideal_transactions_per_request` is what
    its lanes need at least."""

    kernel: str
    line: int
    code: str
    kind: str
    operand: str
    access_bytes: int
    requests: int
    transactions_per_request: float
    ideal_transactions_per_request: float

    @property
    def excess_ratio(self) -> float:
        """How many times more than need be."""
        return (
            self.transactions_per_request / self.ideal_transactions_per_request
            if self.ideal_transactions_per_request
            else 1.0
        )


class SanitizerFinding(Record, frozen=True, kw_only=True):
    """Something wrong that a sanitizer saw."""

    kernel: str
    kind: str
    message: str
    line: int


class EmulationRecommendation(Record, frozen=True, kw_only=True):
    """What to do next, without a time: emulation has none."""

    action: str
    predicted_us: float | None = None


class Emulation(Record, frozen=True, kw_only=True):
    """What kernels ask of memory, without a time. The fields of a `Diagnosis` that emulation cannot fill are empty."""

    problem: str
    candidate: str
    summary: str
    accesses: tuple[MemoryAccess, ...]
    sanitizer_findings: tuple[SanitizerFinding, ...]
    flops: int
    global_bytes: int
    """What all sectors hold: traffic before any cache helps."""
    recommendations: tuple[EmulationRecommendation, ...]
    regime: str = "undetermined"
    coverage: float = 0.0
    time_us: float | None = None
    floors: dict[str, float | None] = msgspec.field(default_factory=lambda: {"as_written_us": None, "fused_us": None})
    work: dict[str, int] = msgspec.field(default_factory=dict)
    operators: tuple[Any, ...] = ()
