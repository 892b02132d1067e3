"""Which reductions of a region run together in one pass, and on which operands."""

from __future__ import annotations

from collections.abc import Collection

from kernelwright.compiler.regions.exponentials import (
    EntryByValue,
    find_exponential_sums,
    find_softmax_divisions,
    match_difference,
    match_exponential_sum,
)
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step
from kernelwright.compiler.triton.op_templates import HALF_DTYPES, is_float
from kernelwright.compiler.triton.reductions import (
    AnyReduction,
    ExactMean,
    OnlineSoftmax,
    RowOperand,
    RowReduction,
    Welford,
)
from kernelwright.compiler.triton.tile import is_row_contiguous


def plan_reductions(region: Region, fuse_pairs: bool, excluded: Collection[str]) -> list[AnyReduction]:
    """Group the reductions of a region.

    Args:
        fuse_pairs: compute pairs in one pass, which pays off where each pass reads the row again.
        excluded: values that are not computed as reductions.
    """
    by_value = {entry.value: entry for entry in (*region.loads, *region.steps)}
    reductions = [step for step in region.steps if isinstance(step, Reduction) and step.value not in excluded]
    has_scan = any(isinstance(step, Scan) for step in region.steps)
    matches = [_match_pair(region, by_value, one) for one in reductions] if fuse_pairs and not has_scan else []
    pairs: list[AnyReduction] = []
    for match in matches:
        if match and not set(match.values) & {*excluded, *(value for other in pairs for value in other.values)}:
            pairs.append(match)
    paired = {value for pair in pairs for value in pair.values}
    singles = [(one, make_operand(region, by_value, one.arg)) for one in reductions if one.value not in paired]
    return pairs + [
        ExactMean(one, operand) if one.op == "mean" else RowReduction(one, operand) for one, operand in singles
    ]


def partials_fit_32_bits(region: Region) -> bool:
    """Whether all partial results of a split row are 32-bit numbers."""
    reductions = [step for step in region.steps if isinstance(step, Reduction)]
    return all(
        one.op in ("sum", "mean", "prod", "max", "min") and one.dtype in ("float32", "int32") for one in reductions
    )


def find_fast_exps(region: Region) -> set[str]:
    """Exponentials relative to a row's maximum that do not need subnormal results, below 1.2e-38: they are only read by
    a sum of 1 or more and by softmax divisions that are stored in half precision."""
    stored = {store.value for store in region.stores}
    read = {value for step in region.steps for value in step.values}
    read |= {store.value for store in region.stores if store.dtype not in HALF_DTYPES}
    half_divisions = find_softmax_divisions(region).keys() - read
    fast_exps = set()
    for total, power in ((one.total, one.exp_step) for one in find_exponential_sums(region)):
        users = {step.value for step in region.steps if power.value in step.values}
        is_fp32_exp = (power.op, power.dtype) == ("exp", "float32")
        if is_fp32_exp and power.value not in stored and users <= {total.value} | half_divisions:
            fast_exps.add(power.value)
    return fast_exps


def register_dtype(entry: Load | Step | Reduction | Scan) -> str:
    """The dtype of a value in registers: float32 for half-precision loads."""
    return "float32" if isinstance(entry, Load) and entry.dtype in HALF_DTYPES else entry.dtype


def make_operand(region: Region, by_value: EntryByValue, value: str) -> RowOperand:
    """A value as the operand of a reduction or scan."""
    axes, row = region.axes_of[value], {axis.name for axis in region.row}
    return RowOperand(
        value, register_dtype(by_value[value]), varies_across_rows=bool(axes - row), varies_along_row=bool(axes & row)
    )


def _match_pair(region: Region, by_value: EntryByValue, second: Reduction) -> OnlineSoftmax | Welford | None:
    """The pair of which `second` is the later reduction."""
    source = by_value[second.arg]
    if second.op != "sum" or not isinstance(source, Step) or not is_float(second.dtype):
        return None
    if match := match_exponential_sum(by_value, second):
        operand, along = make_operand(region, by_value, match.operand), is_row_contiguous(region)
        return OnlineSoftmax(
            match.maximum, second, source.op, operand, match.guards_infinity, along and operand.varies_along_row
        )
    is_square = source.op == "square" or (source.op == "mul" and source.args[0] == source.args[-1])
    return _match_welford(region, by_value, second, source) if is_square else None


def _match_welford(region: Region, by_value: EntryByValue, m2: Reduction, square: Step) -> Welford | None:
    base, shift = match_difference(by_value, square.args[0]) or ("", "")
    mean = by_value.get(shift)
    if not isinstance(mean, Reduction) or mean.op != "mean" or mean.arg != base:
        return None
    operand = make_operand(region, by_value, base)
    return Welford(mean, m2, operand) if operand.varies_along_row else None
