"""Which neighbouring operators one pass over memory could compute together, and what that pass would move."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.core.records import Operator, ProgramWork, Work
from kernelwright.work.regions import Region, RegionSet

FUSIBLE = ("pointwise", "copy", "random", "reduction", "scan")
ROW_BYTES = 256 * 1024
"""A reduction can be broadcast back in the same pass while its row stays on chip: in registers, in an L2."""
RESULT_BYTES = 4


@dataclass
class _Unit:
    """Operators that run as one: a group, or a single operator that cannot be fused."""

    members: list[Operator]
    before: set[int] = field(default_factory=set)
    fusible: bool = False

    @property
    def first(self) -> int:
        return self.members[0].index

    @property
    def last(self) -> int:
        return self.members[-1].index


def fusible_runs(work: ProgramWork) -> tuple[tuple[Operator, ...], ...]:
    """Maximal groups of at least two operators that hand values to one another and could be one kernel each.

    A group never spans an operator that needs one of its values and gives it another back (a product between two
    pointwise operators keeps them apart), nor a reduction that is broadcast back over rows too long to stay on chip.
    """
    graph = _Grouping()
    for operator in work.operators:
        if operator.work.total_bytes:
            graph.add(operator)
    return tuple(tuple(unit.members) for unit in graph.remaining() if unit.fusible and len(unit.members) > 1)


def fused_work(run: tuple[Operator, ...], work: ProgramWork) -> Work:
    """What one kernel in place of these operators would do: the same FLOPs, and only the bytes that must move.

    It reads what the group does not itself produce, once, and writes what somebody outside reads or the program keeps.
    """
    inside = {operator.index for operator in run}
    after = work.operators[run[0].index :] if run else ()
    needed = set(work.outputs)
    for operator in after:
        if operator.index not in inside:
            needed.update(operator.reads)
    flops: dict[str, int] = {}
    read: dict[int, RegionSet] = {}
    written: dict[int, RegionSet] = {}
    for operator in run:
        for unit, amount in operator.work.flops.items():
            flops[unit] = flops.get(unit, 0) + amount
        for number, *span in operator.read_spans:
            parts = written.setdefault(number, RegionSet()).missing(Region(*span))
            read.setdefault(number, RegionSet()).extend(parts)
        for number, *span in operator.write_spans:
            written.setdefault(number, RegionSet()).add(Region(*span))
    return Work(
        flops=flops,
        bytes_read=sum(regions.touched for regions in read.values()),
        bytes_written=sum(regions.touched for number, regions in written.items() if number in needed),
    )


class _Grouping:
    """Puts operators into units in execution order, and merges units as long as no other must run in between."""

    def __init__(self) -> None:
        self.units: list[_Unit] = []
        self._moved_to: list[int] = []
        self._writer: dict[int, int] = {}
        self._readers: dict[int, set[int]] = {}
        self._reductions: dict[int, Operator] = {}

    def add(self, operator: Operator) -> None:
        producers = {self._unit(self._writer[n]) for n in operator.reads if n in self._writer}
        before = producers | self._waits_for(operator)
        here = len(self.units)
        self.units.append(_Unit([operator], set(before), operator.kind in FUSIBLE))
        self._moved_to.append(here)
        if operator.kind in FUSIBLE:
            self._join(here, {unit for unit in producers if self.units[unit].fusible} - self._held_apart(operator))
        self._remember(operator, here)

    def remaining(self) -> list[_Unit]:
        """The units that were not merged into another, by their first operator."""
        return sorted((u for i, u in enumerate(self.units) if self._moved_to[i] == i), key=lambda unit: unit.first)

    def _unit(self, number: int) -> int:
        """Where the operators of this unit are by now."""
        while (moved_to := self._moved_to[number]) != number:
            self._moved_to[number] = self._moved_to[moved_to]
            number = moved_to
        return number

    def _waits_for(self, operator: Operator) -> set[int]:
        """Units that must have read or written a storage before this operator overwrites it."""
        waits = set()
        for number in operator.writes:
            waits |= self._readers.get(number, set())
            waits |= {self._writer[number]} if number in self._writer else set()
        return {self._unit(unit) for unit in waits}

    def _held_apart(self, operator: Operator) -> set[int]:
        """Units whose reduction this operator broadcasts back over rows that are too long."""
        apart = set()
        for number in operator.reads:
            reduction = self._reductions.get(number)
            if reduction is None or operator.work.bytes_written <= reduction.work.bytes_written:
                continue
            row_bytes = RESULT_BYTES * reduction.work.bytes_read // max(1, reduction.work.bytes_written)
            if row_bytes > ROW_BYTES:
                apart.add(self._unit(self._writer[number]))
        return apart

    def _join(self, here: int, candidates: set[int]) -> None:
        merged = {here}
        for unit in sorted(candidates, key=lambda c: self.units[c].last, reverse=True):
            if self._nothing_between(merged | {unit}):
                merged.add(unit)
        if len(merged) == 1:
            return
        into = min(merged)
        union = self.units[into]
        union.members = sorted((o for u in merged for o in self.units[u].members), key=lambda o: o.index)
        union.before = {self._unit(b) for u in merged for b in self.units[u].before} - merged
        for unit in merged:
            self._moved_to[unit] = into

    def _nothing_between(self, merged: set[int]) -> bool:
        """Whether no other unit both needs one of these and is needed by one of these."""
        earliest = min(self.units[unit].first for unit in merged)
        todo = [self._unit(b) for unit in merged for b in self.units[unit].before]
        todo = [unit for unit in todo if unit not in merged]
        seen: set[int] = set()
        while todo:
            unit = todo.pop()
            if unit in merged:
                return False
            if unit not in seen and self.units[unit].last >= earliest:
                seen.add(unit)
                todo += [self._unit(b) for b in self.units[unit].before]
        return True

    def _remember(self, operator: Operator, here: int) -> None:
        for number in operator.reads:
            self._readers.setdefault(number, set()).add(here)
        for number in operator.writes:
            self._writer[number] = here
            self._readers[number] = set()
            if operator.kind == "reduction" and operator.work.bytes_written < operator.work.bytes_read // 2:
                self._reductions[number] = operator
            else:
                self._reductions.pop(number, None)
