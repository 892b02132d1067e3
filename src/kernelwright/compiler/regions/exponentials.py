"""Pattern matching of sums of exp(x - row maximum), as in every variant of softmax and logsumexp."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step

EntryByValue = dict[str, Load | Step | Reduction | Scan]


class ExponentialSum(NamedTuple):
    """A sum over a row of exp(operand - maximum).

    Attributes:
        maximum: the maximum of `operand` over the row.
        total: the sum of `exp_step` over the row.
        exp_step: the exponential.
        operand: the value whose exponentials are summed.
        guards_infinity: whether an infinite maximum counts as 0, as in logsumexp.
    """

    maximum: Reduction
    total: Reduction
    exp_step: Step
    operand: str
    guards_infinity: bool


def find_exponential_sums(region: Region) -> list[ExponentialSum]:
    """Return all sums of exponentials of a region."""
    by_value: EntryByValue = {entry.value: entry for entry in (*region.loads, *region.steps)}
    matches = [match_exponential_sum(by_value, step) for step in region.steps if isinstance(step, Reduction)]
    return [match for match in matches if match]


def match_exponential_sum(by_value: EntryByValue, total: Reduction) -> ExponentialSum | None:
    """Match a sum of exponentials; None if the reduction is not one."""
    exp_step = by_value[total.arg]
    if total.op != "sum" or not isinstance(exp_step, Step) or exp_step.op not in ("exp", "exp2"):
        return None
    operand, shift = match_difference(by_value, exp_step.args[0]) or ("", "")
    unguarded = _match_guarded_max(by_value, shift) or shift
    maximum = by_value.get(unguarded)
    if not isinstance(maximum, Reduction) or maximum.op != "max" or maximum.arg != operand:
        return None
    return ExponentialSum(maximum, total, exp_step, operand, guards_infinity=unguarded != shift)


def find_softmax_divisions(region: Region) -> dict[str, str]:
    """Map each quotient by a sum of exponentials to that sum.

    The sum is at least 1, NaN, or 0 where all of a row is -inf, so that multiplying by its reciprocal is safe.
    """
    totals = {one.total.value for one in find_exponential_sums(region)}
    quotients = [step for step in region.steps if isinstance(step, Step) and step.op == "div"]
    return {one.value: str(one.args[1]) for one in quotients if one.dtype == "float32" and one.args[1] in totals}


def match_difference(by_value: EntryByValue, value: object) -> tuple[str, str] | None:
    """Return (a, b) if a value is a - b."""
    step = by_value.get(value) if isinstance(value, str) else None
    if isinstance(step, Step) and step.op == "sub" and len(step.values) == 2:
        return step.values[0], step.values[1]
    return None


def _match_guarded_max(by_value: EntryByValue, value: str) -> str:
    """The maximum in `where(abs(maximum) == inf, 0, maximum)`; empty if the value is something else."""
    where = by_value.get(value)
    if not isinstance(where, Step) or where.op != "where" or _constant_value(by_value, where.args[1]) != 0:
        return ""
    test = by_value[str(where.args[0])]
    if not isinstance(test, Step) or test.op != "eq" or _constant_value(by_value, test.args[1]) != float("inf"):
        return ""
    magnitude = by_value.get(str(test.args[0]))
    same = isinstance(magnitude, Step) and magnitude.op == "abs" and magnitude.args[0] == where.args[2]
    return str(where.args[2]) if same else ""


def _constant_value(by_value: EntryByValue, arg: object) -> object:
    step = by_value.get(arg) if isinstance(arg, str) else None
    return step.args[0] if isinstance(step, Step) and step.op == "constant" else arg
