"""Sums of exponentials below a row's maximum, as softmax and logsumexp have them in every spelling."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step

EntryByValue = dict[str, Load | Step | Reduction | Scan]


class ExponentialSum(NamedTuple):
    """`total` is the sum over a row of `exp_step`, the exponential of `operand` less `maximum`. A `guards_infinity`
    one, as of logsumexp, takes an infinite maximum as 0."""

    maximum: Reduction
    total: Reduction
    exp_step: Step
    operand: str
    guards_infinity: bool


def find_exponential_sums(region: Region) -> list[ExponentialSum]:
    """All of a region's."""
    by_value: EntryByValue = {entry.value: entry for entry in (*region.loads, *region.steps)}
    found = [match_exponential_sum(by_value, step) for step in region.steps if isinstance(step, Reduction)]
    return [one for one in found if one]


def match_exponential_sum(by_value: EntryByValue, total: Reduction) -> ExponentialSum | None:
    """What a sum of exponentials is made of; None where a reduction is no such sum."""
    power = by_value[total.arg]
    if total.op != "sum" or not isinstance(power, Step) or power.op not in ("exp", "exp2"):
        return None
    base, shift = match_difference(by_value, power.args[0]) or ("", "")
    top = _match_guarded_max(by_value, shift) or shift
    maximum = by_value.get(top)
    if not isinstance(maximum, Reduction) or maximum.op != "max" or maximum.arg != base:
        return None
    return ExponentialSum(maximum, total, power, base, guards_infinity=top != shift)


def find_softmax_divisions(region: Region) -> dict[str, str]:
    """Quotients by a sum of exponentials below a row's maximum, with that sum: it is 1 or more, or no number, or 0
    where all of a row is minus infinity, so that its reciprocal loses nothing."""
    totals = {one.total.value for one in find_exponential_sums(region)}
    quotients = [step for step in region.steps if isinstance(step, Step) and step.op == "div"]
    return {one.value: str(one.args[1]) for one in quotients if one.dtype == "float32" and one.args[1] in totals}


def match_difference(by_value: EntryByValue, value: object) -> tuple[str, str] | None:
    """(a, b) where a value is a - b."""
    step = by_value.get(value) if isinstance(value, str) else None
    if isinstance(step, Step) and step.op == "sub" and len(step.values) == 2:
        return step.values[0], step.values[1]
    return None


def _match_guarded_max(by_value: EntryByValue, value: str) -> str:
    """The maximum in `where(abs(maximum) == inf, 0, maximum)`; empty where it is something else."""
    choice = by_value.get(value)
    if not isinstance(choice, Step) or choice.op != "where" or _constant_value(by_value, choice.args[1]) != 0:
        return ""
    equal = by_value[str(choice.args[0])]
    if not isinstance(equal, Step) or equal.op != "eq" or _constant_value(by_value, equal.args[1]) != float("inf"):
        return ""
    size = by_value.get(str(equal.args[0]))
    same = isinstance(size, Step) and size.op == "abs" and size.args[0] == choice.args[2]
    return str(choice.args[2]) if same else ""


def _constant_value(by_value: EntryByValue, arg: object) -> object:
    step = by_value.get(arg) if isinstance(arg, str) else None
    return step.args[0] if isinstance(step, Step) and step.op == "constant" else arg
