"""Records of `kw why PROBLEM kernel.cu --device emulated`: memory accesses of CUDA C++, counted on a CPU."""

from __future__ import annotations

from typing import Any

import msgspec

from kernelwright.core.record import Record


class MemoryAccess(Record, frozen=True, kw_only=True):
    """A memory access in the source.

    `transactions_per_request` is the mean per warp-level request: 32-byte sectors of global memory, or wavefronts of
    shared memory. `ideal_transactions_per_request` is the minimum for the same lanes.
    """

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
        """Transactions over the minimum."""
        return (
            self.transactions_per_request / self.ideal_transactions_per_request
            if self.ideal_transactions_per_request
            else 1.0
        )


class SanitizerFinding(Record, frozen=True, kw_only=True):
    """An error that the sanitizer reported."""

    kernel: str
    kind: str
    message: str
    line: int


class EmulationRecommendation(Record, frozen=True, kw_only=True):
    """A recommendation without a predicted time, as emulation does not time anything."""

    action: str
    predicted_us: float | None = None


class Emulation(Record, frozen=True, kw_only=True):
    """Memory accesses of the kernels, without a time. Fields of a `Diagnosis` that emulation cannot fill are empty."""

    problem: str
    candidate: str
    summary: str
    accesses: tuple[MemoryAccess, ...]
    sanitizer_findings: tuple[SanitizerFinding, ...]
    flops: int
    global_bytes: int
    """Bytes of all sectors: the traffic without cache hits."""
    recommendations: tuple[EmulationRecommendation, ...]
    regime: str = "undetermined"
    coverage: float = 0.0
    time_us: float | None = None
    floors: dict[str, float | None] = msgspec.field(default_factory=lambda: {"as_written_us": None, "fused_us": None})
    work: dict[str, int] = msgspec.field(default_factory=dict)
    operators: tuple[Any, ...] = ()
