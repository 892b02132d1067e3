"""Which neighbouring operators one pass over memory could compute together, and what that pass would move."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.core.records import Operator, ProgramWork, Work
from kernelwright.work.regions import ByteRange, ByteRangeSet

FUSIBLE_KINDS = ("pointwise", "copy", "random", "reduction", "scan")
MAX_ROW_BYTES = 256 * 1024
"""A reduction can be broadcast back in the same pass while its row stays on chip: in registers, in an L2."""
ACCUMULATOR_BYTES = 4


@dataclass
class _Group:
    """Operators that run as one: a group, or a single operator that cannot be fused."""

    members: list[Operator]
    depends_on: set[int] = field(default_factory=set)
    fusible: bool = False

    @property
    def first(self) -> int:
        return self.members[0].index

    @property
    def last(self) -> int:
        return self.members[-1].index


def fusion_groups(work: ProgramWork) -> tuple[tuple[Operator, ...], ...]:
    """Maximal groups of at least two operators that hand values to one another and could be one kernel each.

    A group never spans an operator that needs one of its values and gives it another back (a product between two
    pointwise operators keeps them apart), nor a reduction that is broadcast back over rows too long to stay on chip.
    """
    graph = _GroupBuilder()
    for operator in work.operators:
        if operator.work.total_bytes:
            graph.add(operator)
    return tuple(tuple(unit.members) for unit in graph.root_groups() if unit.fusible and len(unit.members) > 1)


def fused_work(group: tuple[Operator, ...], work: ProgramWork) -> Work:
    """What one kernel in place of these operators would do: the same FLOPs, and only the bytes that must move.

    It reads what the group does not itself produce, once, and writes what somebody outside reads or the program keeps.
    """
    inside = {operator.index for operator in group}
    after = work.operators[group[0].index :] if group else ()
    needed = set(work.outputs)
    for operator in after:
        if operator.index not in inside:
            needed.update(operator.reads)
    flops: dict[str, int] = {}
    read: dict[int, ByteRangeSet] = {}
    written: dict[int, ByteRangeSet] = {}
    for operator in group:
        for unit, amount in operator.work.flops.items():
            flops[unit] = flops.get(unit, 0) + amount
        for number, *span in operator.read_spans:
            parts = written.setdefault(number, ByteRangeSet()).missing(ByteRange(*span))
            read.setdefault(number, ByteRangeSet()).extend(parts)
        for number, *span in operator.write_spans:
            written.setdefault(number, ByteRangeSet()).add(ByteRange(*span))
    return Work(
        flops=flops,
        bytes_read=sum(regions.touched_bytes for regions in read.values()),
        bytes_written=sum(regions.touched_bytes for number, regions in written.items() if number in needed),
    )


class _GroupBuilder:
    """Puts operators into units in execution order, and merges units as long as no other must run in between."""

    def __init__(self) -> None:
        self.groups: list[_Group] = []
        self._parent: list[int] = []
        self._last_writer: dict[int, int] = {}
        self._readers: dict[int, set[int]] = {}
        self._reductions: dict[int, Operator] = {}

    def add(self, operator: Operator) -> None:
        producers = {self._find(self._last_writer[n]) for n in operator.reads if n in self._last_writer}
        before = producers | self._ordering_dependencies(operator)
        here = len(self.groups)
        self.groups.append(_Group([operator], set(before), operator.kind in FUSIBLE_KINDS))
        self._parent.append(here)
        if operator.kind in FUSIBLE_KINDS:
            self._merge(
                here, {unit for unit in producers if self.groups[unit].fusible} - self._unfusable_with(operator)
            )
        self._record_accesses(operator, here)

    def root_groups(self) -> list[_Group]:
        """The units that were not merged into another, by their first operator."""
        return sorted((u for i, u in enumerate(self.groups) if self._parent[i] == i), key=lambda unit: unit.first)

    def _find(self, group: int) -> int:
        """Where the operators of this unit are by now."""
        while (moved_to := self._parent[group]) != group:
            self._parent[group] = self._parent[moved_to]
            group = moved_to
        return group

    def _ordering_dependencies(self, operator: Operator) -> set[int]:
        """Units that must have read or written a storage before this operator overwrites it."""
        waits = set()
        for number in operator.writes:
            waits |= self._readers.get(number, set())
            waits |= {self._last_writer[number]} if number in self._last_writer else set()
        return {self._find(unit) for unit in waits}

    def _unfusable_with(self, operator: Operator) -> set[int]:
        """Units whose reduction this operator broadcasts back over rows that are too long."""
        apart = set()
        for number in operator.reads:
            reduction = self._reductions.get(number)
            if reduction is None or operator.work.bytes_written <= reduction.work.bytes_written:
                continue
            row_bytes = ACCUMULATOR_BYTES * reduction.work.bytes_read // max(1, reduction.work.bytes_written)
            if row_bytes > MAX_ROW_BYTES:
                apart.add(self._find(self._last_writer[number]))
        return apart

    def _merge(self, group: int, candidates: set[int]) -> None:
        merged = {group}
        for unit in sorted(candidates, key=lambda c: self.groups[c].last, reverse=True):
            if self._is_mergeable(merged | {unit}):
                merged.add(unit)
        if len(merged) == 1:
            return
        into = min(merged)
        union = self.groups[into]
        union.members = sorted((o for u in merged for o in self.groups[u].members), key=lambda o: o.index)
        union.depends_on = {self._find(b) for u in merged for b in self.groups[u].depends_on} - merged
        for unit in merged:
            self._parent[unit] = into

    def _is_mergeable(self, merged: set[int]) -> bool:
        """Whether no other unit both needs one of these and is needed by one of these."""
        earliest = min(self.groups[unit].first for unit in merged)
        todo = [self._find(b) for unit in merged for b in self.groups[unit].depends_on]
        todo = [unit for unit in todo if unit not in merged]
        seen: set[int] = set()
        while todo:
            unit = todo.pop()
            if unit in merged:
                return False
            if unit not in seen and self.groups[unit].last >= earliest:
                seen.add(unit)
                todo += [self._find(b) for b in self.groups[unit].depends_on]
        return True

    def _record_accesses(self, operator: Operator, group: int) -> None:
        for number in operator.reads:
            self._readers.setdefault(number, set()).add(group)
        for number in operator.writes:
            self._last_writer[number] = group
            self._readers[number] = set()
            if operator.kind == "reduction" and operator.work.bytes_written < operator.work.bytes_read // 2:
                self._reductions[number] = operator
            else:
                self._reductions.pop(number, None)
