"""The record of a climb: every rung verified on many shapes and timed beside the library that it climbs towards."""

from __future__ import annotations

from kernelwright.core.evidence import RowState
from kernelwright.core.machine_code import CodeChange, MachineCode
from kernelwright.core.records import Comparison, Machine, Record


class SizeTime(Record, frozen=True, kw_only=True):
    """One rung on one size beside its peer, in one run with the two alternating. `compared` says by how much `a`, the
    rung, is faster."""

    size: tuple[int, ...]
    flops: int
    bytes: int
    time_us: float
    peer_us: float
    compared: Comparison

    @property
    def of_peer(self) -> float:
        """The rung's speed as a share of the peer's."""
        return self.compared.ratio


class RungOutcome(Record, frozen=True, kw_only=True):
    """What became of a rung: right on `shapes` shapes or the reason why not, and its times."""

    number: int
    name: str
    title: str
    question: str
    hypothesis: str
    next: str
    accepted: bool
    shapes: int
    reason: str = ""
    times: tuple[SizeTime, ...] = ()
    notes: tuple[str, ...] = ()
    code: MachineCode | None = None
    """Of its largest kernel, with the instructions of the hot loop alone; None where nobody asked."""
    changes: tuple[CodeChange, ...] = ()
    """What of it is not as on the rung before."""


class Climb(Record, frozen=True, kw_only=True):
    """A ladder in `dtype` climbed here and now, or, where `recorded` holds a date, as it was then on `machine`."""

    ladder: str
    machine: Machine
    peer: str
    rungs: tuple[RungOutcome, ...]
    recorded: str = ""
    dtype: str = "float32"
    notes: tuple[str, ...] = ()


class RungCount(Record, frozen=True, kw_only=True):
    """What emulation and the hardware's counters say of one ratio: sectors of a request to global memory, or passes
    over the banks of shared memory by the least that would do."""

    number: int
    name: str
    what: str
    emulated: float
    counted: float


class RungResult(Record, frozen=True, kw_only=True):
    """What a row of evidence holds: a climb of one rung, and its counts."""

    climb: Climb
    counts: tuple[RungCount, ...] = ()


class LadderClimb(Record, frozen=True, kw_only=True):
    """A ladder on one machine, put together from the rows of its rungs; `states` has one for each rung."""

    climb: Climb
    counts: tuple[RungCount, ...]
    states: tuple[RowState, ...]

    @property
    def date(self) -> str:
        """Of the newest rung."""
        return max(one.date for one in self.states)
