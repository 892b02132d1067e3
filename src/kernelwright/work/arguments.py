"""Which operator is the first to read what a program was called with: there, and only there, it may lie far away."""

from __future__ import annotations

from kernelwright.core.records import ProgramWork


def first_read_bytes(work: ProgramWork) -> dict[int, int]:
    """Bytes of arguments that each operator reads before any other has touched their storage, by its index."""
    untouched, found = set(work.arguments), {}
    for operator in work.operators:
        found[operator.index] = sum(touched for number, _, _, touched in operator.read_spans if number in untouched)
        untouched.difference_update(operator.reads, operator.writes)
    return found
