"""Comparison of two kernels' machine code: the metrics that differ."""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.core.machine_code import CodeChange, CodeDifference, MachineCode
from kernelwright.core.units import percent_text

_LESS_IS_BETTER, _NEITHER = -1, 0


def diff_machine_code(before: MachineCode, after: MachineCode) -> CodeDifference:
    """Compare two kernels; a change is marked better or worse only where fewer is always better."""
    changes = tuple(_change(*row) for row in _rows(before, after) if row[1] != row[2])
    return CodeDifference(before=before, after=after, changes=changes)


def _rows(before: MachineCode, after: MachineCode) -> Iterator[tuple[str, float, float, int]]:
    """Metric, both values, and whether less is better."""
    for metric, field, sense in (
        ("registers", "registers", _NEITHER),
        ("shared bytes", "shared_bytes", _NEITHER),
        ("stack bytes", "stack_bytes", _LESS_IS_BETTER),
        ("instructions", "num_instructions", _NEITHER),
    ):
        yield metric, getattr(before, field), getattr(after, field), sense
    yield "spill stores, bytes", before.spills.stored_bytes, after.spills.stored_bytes, _LESS_IS_BETTER
    yield "spill loads, bytes", before.spills.loaded_bytes, after.spills.loaded_bytes, _LESS_IS_BETTER
    if before.occupancy and after.occupancy:
        yield "occupancy", before.occupancy.fraction, after.occupancy.fraction, _NEITHER
    yield from _tables("", before.instruction_mix, after.instruction_mix)
    for kind in dict.fromkeys([*before.access_widths, *after.access_widths]):
        old, new = before.access_widths.get(kind, {}), after.access_widths.get(kind, {})
        for size in sorted({*old, *new}, reverse=True):
            yield f"{kind}s of {size} bytes".replace("memorys", "memory"), old.get(size, 0), new.get(size, 0), _NEITHER
    yield from _tables("", before.tensor_instructions, after.tensor_instructions)
    old_hot, new_hot = before.hot_loop, after.hot_loop
    yield (
        "hot loop, instructions",
        old_hot.num_instructions if old_hot else 0,
        new_hot.num_instructions if new_hot else 0,
        _NEITHER,
    )
    yield from _tables(
        "hot loop, ", old_hot.instruction_mix if old_hot else {}, new_hot.instruction_mix if new_hot else {}
    )


def _tables(prefix: str, before: dict[str, int], after: dict[str, int]) -> Iterator[tuple[str, float, float, int]]:
    for name in dict.fromkeys([*before, *after]):
        yield prefix + name, before.get(name, 0), after.get(name, 0), _NEITHER


def _change(metric: str, before: float, after: float, sense: int) -> CodeChange:
    format_value = percent_text if metric == "occupancy" else "{:,}".format
    is_better = None if sense == _NEITHER else (after < before) == (sense == _LESS_IS_BETTER)
    return CodeChange(metric=metric, before=format_value(before), after=format_value(after), is_better=is_better)
