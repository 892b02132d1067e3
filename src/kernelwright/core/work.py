"""The FLOPs and bytes of operators and programs."""

from __future__ import annotations

from typing import Literal

import msgspec

from kernelwright.core.record import Record


class Work(Record, frozen=True, kw_only=True):
    """FLOPs per unit (`matrix/float32`, `vector/float32`, `special/float32`) and bytes to move."""

    flops: dict[str, int] = msgspec.field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())

    @property
    def total_bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Work) -> Work:
        flops = dict(self.flops)
        for unit, count in other.flops.items():
            flops[unit] = flops.get(unit, 0) + count
        return Work(
            flops=flops,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
        )


OperatorKind = Literal[
    "pointwise", "reduction", "scan", "matrix", "convolution", "attention", "gather", "copy", "random", "view", "other"
]  # fmt: skip


class Operator(Record, frozen=True, kw_only=True):
    """One operator call of a program.

    `reads` and `writes` are the indices of the storages it accesses, which identify values across calls;
    `flops_known` is False without a registered FLOP formula; `module` is the path of the calling nn.Module, or empty.
    A span is (storage index, first byte, end, bytes accessed in between); the spans of a call do not overlap.
    """

    index: int
    name: str
    kind: OperatorKind
    flops_known: bool
    work: Work
    shapes: str
    module: str = ""
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    read_spans: tuple[tuple[int, int, int, int], ...] = ()
    write_spans: tuple[tuple[int, int, int, int], ...] = ()
    allocated_bytes: int = 0


class ProgramWork(Record, frozen=True, kw_only=True):
    """The work of one run of a program: per operator as written, and as one ideal fused pass.

    `coverage` is the fraction of calls (weighted by bytes moved) with known FLOPs. `inputs` lists the storages that
    existed before the run, `arguments` those of them passed as arguments, `outputs` those whose contents are results:
    returned, stored in the module or written in place.
    """

    operators: tuple[Operator, ...]
    as_written: Work
    fused: Work
    coverage: float
    output_bytes: int
    inputs: tuple[int, ...] = ()
    arguments: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
