"""Group adjacent operators that one pass over memory could compute together, and count the bytes of that pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.core.work import Operator, ProgramWork, Work
from kernelwright.work.regions import ByteRange, ByteRangeSet

FUSIBLE_KINDS = ("pointwise", "copy", "random", "reduction", "scan")
MAX_ROW_BYTES = 256 * 1024
"""A reduction can be broadcast back in the same pass while its row stays on chip: in registers, in an L2."""
ACCUMULATOR_BYTES = 4


@dataclass
class _Group:
    """Operators that run as one kernel, or a single operator that cannot be fused."""

    members: list[Operator]
    depends_on: set[int] = field(default_factory=set)
    fusible: bool = False

    @property
    def first(self) -> int:
        """Index of the first operator."""
        return self.members[0].index

    @property
    def last(self) -> int:
        """Index of the last operator."""
        return self.members[-1].index


def fusion_groups(work: ProgramWork) -> tuple[tuple[Operator, ...], ...]:
    """Maximal groups of at least two operators that exchange values and could each be one kernel.

    A group never spans an operator outside it that reads one of its values and produces another (a matmul between two
    pointwise operators separates them), nor a reduction broadcast back over rows too long to stay on chip.
    """
    graph = _GroupBuilder()
    for operator in work.operators:
        if operator.work.total_bytes:
            graph.add(operator)
    return tuple(tuple(group.members) for group in graph.root_groups() if group.fusible and len(group.members) > 1)


def fused_work(group: tuple[Operator, ...], work: ProgramWork) -> Work:
    """Work of one kernel in place of these operators: the same FLOPs, and only the bytes that must move.

    It reads once what the group does not produce itself, and writes what other operators read or the program returns.
    """
    inside = {operator.index for operator in group}
    following = work.operators[group[0].index :] if group else ()
    needed = set(work.outputs)
    for operator in following:
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
    """Adds operators to groups in execution order, and merges groups if no other operator must run in between."""

    def __init__(self) -> None:
        self.groups: list[_Group] = []
        self._parent: list[int] = []
        self._last_writer: dict[int, int] = {}
        self._readers: dict[int, set[int]] = {}
        self._reductions: dict[int, Operator] = {}

    def add(self, operator: Operator) -> None:
        producers = {self._find(self._last_writer[n]) for n in operator.reads if n in self._last_writer}
        before = producers | self._ordering_dependencies(operator)
        index = len(self.groups)
        self.groups.append(_Group([operator], set(before), operator.kind in FUSIBLE_KINDS))
        self._parent.append(index)
        if operator.kind in FUSIBLE_KINDS:
            self._merge(
                index, {group for group in producers if self.groups[group].fusible} - self._unfusable_with(operator)
            )
        self._record_accesses(operator, index)

    def root_groups(self) -> list[_Group]:
        """Groups that were not merged into another, by their first operator."""
        roots = (group for index, group in enumerate(self.groups) if self._parent[index] == index)
        return sorted(roots, key=lambda group: group.first)

    def _find(self, group: int) -> int:
        """The group into which this one was merged, with path compression."""
        while (parent := self._parent[group]) != group:
            self._parent[group] = self._parent[parent]
            group = parent
        return group

    def _ordering_dependencies(self, operator: Operator) -> set[int]:
        """Groups that must have read or written a storage before this operator overwrites it."""
        dependencies = set()
        for number in operator.writes:
            dependencies |= self._readers.get(number, set())
            dependencies |= {self._last_writer[number]} if number in self._last_writer else set()
        return {self._find(group) for group in dependencies}

    def _unfusable_with(self, operator: Operator) -> set[int]:
        """Groups whose reduction this operator broadcasts back over rows that are too long."""
        excluded = set()
        for number in operator.reads:
            reduction = self._reductions.get(number)
            if reduction is None or operator.work.bytes_written <= reduction.work.bytes_written:
                continue
            row_bytes = ACCUMULATOR_BYTES * reduction.work.bytes_read // max(1, reduction.work.bytes_written)
            if row_bytes > MAX_ROW_BYTES:
                excluded.add(self._find(self._last_writer[number]))
        return excluded

    def _merge(self, group: int, candidates: set[int]) -> None:
        merged = {group}
        for group in sorted(candidates, key=lambda c: self.groups[c].last, reverse=True):
            if self._is_mergeable(merged | {group}):
                merged.add(group)
        if len(merged) == 1:
            return
        into = min(merged)
        union = self.groups[into]
        union.members = sorted((o for u in merged for o in self.groups[u].members), key=lambda o: o.index)
        union.depends_on = {self._find(b) for u in merged for b in self.groups[u].depends_on} - merged
        for group in merged:
            self._parent[group] = into

    def _is_mergeable(self, merged: set[int]) -> bool:
        """Whether no group outside both depends on one of these and is needed by one of these."""
        earliest = min(self.groups[group].first for group in merged)
        pending = [self._find(b) for group in merged for b in self.groups[group].depends_on]
        pending = [group for group in pending if group not in merged]
        visited: set[int] = set()
        while pending:
            group = pending.pop()
            if group in merged:
                return False
            if group not in visited and self.groups[group].last >= earliest:
                visited.add(group)
                pending += [self._find(b) for b in self.groups[group].depends_on]
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
