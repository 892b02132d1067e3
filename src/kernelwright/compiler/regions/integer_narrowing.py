"""Indices, and values computed from them, in int32 where that suffices: twice the SIMD lanes of int64."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.regions.operators import COMPARISONS
from kernelwright.compiler.regions.region import Reduction, Region, Scan, Step

INT32_MAX = 2**31 - 1
IntegerRange = tuple[int, int]


def narrow_integers(region: Region) -> Region:
    """Return the same region with int64 values narrowed to int32 where they fit and no user needs int64."""
    ranges = _value_ranges(region)
    region = _narrow_gather_positions(region, ranges)
    narrow = {
        step.value
        for step in region.steps
        if isinstance(step, Step) and step.dtype == "int64" and step.value in ranges and _fits_int32(ranges[step.value])
    }
    while unsafe := {value for value in narrow if not _can_narrow(region, value, narrow)}:
        narrow -= unsafe
    steps = tuple(
        msgspec.structs.replace(step, dtype="int32") if isinstance(step, Step) and step.value in narrow else step
        for step in region.steps
    )
    return msgspec.structs.replace(region, steps=steps) if narrow else region


def _narrow_gather_positions(region: Region, ranges: dict[str, IntegerRange]) -> Region:
    """Narrow a row's value that is compared with an index, as a target class is, to int32; to -1, which no index
    equals, if it does not fit."""
    by_value = {entry.value: entry for entry in (*region.loads, *region.steps)}
    row, steps, narrowed = {axis.name for axis in region.row}, [], {}
    for step in region.steps:
        if row and isinstance(step, Step) and step.op in ("eq", "ne") and len(step.values) == 2:
            index, target = step.values if step.values[0] in ranges else step.values[::-1]
            is_index = index in ranges and ranges[index][0] >= 0 and _fits_int32(ranges[index])
            is_row_value = target not in ranges and not region.axes_of[target] & row
            if is_index and is_row_value and by_value[target].dtype == "int64":
                if target not in narrowed:
                    narrowed[target] = f"{target}_narrow"
                    steps += _checked_narrowing_steps(target)
                step = msgspec.structs.replace(step, args=(index, narrowed[target]))
        steps.append(step)
    return msgspec.structs.replace(region, steps=tuple(steps)) if narrowed else region


def _checked_narrowing_steps(number: str) -> tuple[Step, ...]:
    low, back, fits = f"{number}_low", f"{number}_back", f"{number}_fits"
    return (
        Step(value=low, op="cast", args=(number,), dtype="int32"),
        Step(value=back, op="cast", args=(low,), dtype="int64"),
        Step(value=fits, op="eq", args=(number, back), dtype="bool"),
        Step(value=f"{number}_narrow", op="where", args=(fits, low, -1), dtype="int32"),
    )


def _can_narrow(region: Region, value: str, narrow: set[str]) -> bool:
    """Whether a value depends on narrow values only and all its users accept a narrow one."""
    if any(store.value == value for store in region.stores):
        return False
    narrow = narrow | {step.value for step in region.steps if step.dtype == "int32"}
    for step in region.steps:
        if isinstance(step, (Reduction, Scan)):
            if step.arg == value:
                return False
            continue
        operands = [arg for arg in step.values if step.op != "where" or arg != step.args[0]]
        if step.value == value and step.op != "index" and not narrow.issuperset(operands):
            return False
        accepts_any = step.value in narrow or step.op == "cast"
        compares_narrow = step.op in COMPARISONS and narrow.issuperset(step.values)
        if value in step.values and not accepts_any and not compares_narrow:
            return False
    return True


def _fits_int32(values: IntegerRange) -> bool:
    return values[0] >= -INT32_MAX and values[1] <= INT32_MAX


def _value_ranges(region: Region) -> dict[str, IntegerRange]:
    """The (least, largest) integer of each value that depends on indices and constants only."""
    sizes = {axis.name: axis.size for axis in (*region.outer, *region.row)}
    ranges: dict[str, IntegerRange] = {}
    for step in region.steps:
        if not isinstance(step, Step) or step.dtype != "int64":
            continue
        if step.op == "index":
            ranges[step.value] = (0, sizes[str(step.args[0])] - 1)
            continue
        args = step.args[1:] if step.op == "where" else step.args
        arg_ranges = [ranges.get(arg) if isinstance(arg, str) else (int(arg), int(arg)) for arg in args]
        if (
            (known := [one for one in arg_ranges if one])
            and len(known) == len(arg_ranges)
            and (out := _result_range(step.op, known))
        ):
            ranges[step.value] = out
    return ranges


def _result_range(op: str, args: list[IntegerRange]) -> IntegerRange | None:
    (low, high), (other_low, other_high) = args[0], args[-1]
    match op:
        case "constant":
            return low, high
        case "neg":
            return -high, -low
        case "abs":
            return 0, max(abs(low), abs(high))
        case "add":
            return low + other_low, high + other_high
        case "sub":
            return low - other_high, high - other_low
        case "mul":
            ends = [one * other for one in (low, high) for other in (other_low, other_high)]
            return min(ends), max(ends)
        case "min":
            return min(low, other_low), min(high, other_high)
        case "max":
            return max(low, other_low), max(high, other_high)
        case "where":
            return min(low, other_low), max(high, other_high)
        case "floor_div" if other_low == other_high > 0:
            return low // other_low, high // other_low
        case "remainder" if other_low == other_high > 0:
            return 0, other_low - 1
    return None
