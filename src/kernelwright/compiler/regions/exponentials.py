"""Sums of exponentials below a row's maximum, as softmax and logsumexp have them in every spelling."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step

Entries = dict[str, Load | Step | Reduction | Scan]


class ExponentialSum(NamedTuple):
    """`total` is the sum over a row of `power`, the exponential of `base` less `maximum`. A `guarded` one, as of
    logsumexp, takes an infinite maximum as 0."""

    maximum: Reduction
    total: Reduction
    power: Step
    base: str
    guarded: bool


def exponential_sums(region: Region) -> list[ExponentialSum]:
    """All of a region's."""
    by_value: Entries = {entry.value: entry for entry in (*region.loads, *region.steps)}
    found = [exponential_sum(by_value, step) for step in region.steps if isinstance(step, Reduction)]
    return [one for one in found if one]


def exponential_sum(by_value: Entries, total: Reduction) -> ExponentialSum | None:
    """What a sum of exponentials is made of; None where a reduction is no such sum."""
    power = by_value[total.arg]
    if total.op != "sum" or not isinstance(power, Step) or power.op not in ("exp", "exp2"):
        return None
    base, shift = difference(by_value, power.args[0]) or ("", "")
    top = _guarded(by_value, shift) or shift
    maximum = by_value.get(top)
    if not isinstance(maximum, Reduction) or maximum.op != "max" or maximum.arg != base:
        return None
    return ExponentialSum(maximum, total, power, base, guarded=top != shift)


def shares(region: Region) -> dict[str, str]:
    """Quotients by a sum of exponentials below a row's maximum, with that sum: it is 1 or more, or no number, or 0
    where all of a row is minus infinity, so that its reciprocal loses nothing."""
    totals = {one.total.value for one in exponential_sums(region)}
    quotients = [step for step in region.steps if isinstance(step, Step) and step.op == "div"]
    return {one.value: str(one.args[1]) for one in quotients if one.dtype == "float32" and one.args[1] in totals}


def difference(by_value: Entries, value: object) -> tuple[str, str] | None:
    """(a, b) where a value is a - b."""
    step = by_value.get(value) if isinstance(value, str) else None
    if isinstance(step, Step) and step.op == "sub" and len(step.values) == 2:
        return step.values[0], step.values[1]
    return None


def _guarded(by_value: Entries, value: str) -> str:
    """The maximum in `where(abs(maximum) == inf, 0, maximum)`; empty where it is something else."""
    choice = by_value.get(value)
    if not isinstance(choice, Step) or choice.op != "where" or _constant(by_value, choice.args[1]) != 0:
        return ""
    equal = by_value[str(choice.args[0])]
    if not isinstance(equal, Step) or equal.op != "eq" or _constant(by_value, equal.args[1]) != float("inf"):
        return ""
    size = by_value.get(str(equal.args[0]))
    same = isinstance(size, Step) and size.op == "abs" and size.args[0] == choice.args[2]
    return str(choice.args[2]) if same else ""


def _constant(by_value: Entries, arg: object) -> object:
    step = by_value.get(arg) if isinstance(arg, str) else None
    return step.args[0] if isinstance(step, Step) and step.op == "constant" else arg
