"""Find the operator that first reads each program argument: only that read may miss every cache."""

from __future__ import annotations

from kernelwright.core.work import ProgramWork


def first_read_bytes(work: ProgramWork) -> dict[int, int]:
    """Bytes of arguments that each operator reads before any other accessed their storage, by operator index."""
    unread, first_reads = set(work.arguments), {}
    for operator in work.operators:
        first_reads[operator.index] = sum(touched for number, _, _, touched in operator.read_spans if number in unread)
        unread.difference_update(operator.reads, operator.writes)
    return first_reads
