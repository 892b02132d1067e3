"""Factors of a whole row, such as that of an RMSNorm, multiply a sum over the row instead of each of its elements.

The norm of a row takes a pass over it before the product with each row of a matrix can start; without the factor, both
sums take one pass. A factor leaves the sum only if it is one over the root of a mean of squares of what it multiplies:
then the squares overflow long before the sum without the factor does.
"""

from __future__ import annotations

import msgspec

from kernelwright.compiler.regions.region import Reduction, Region, Scan, Step, required_values

AnyStep = Step | Reduction | Scan


def pull_row_factors(region: Region) -> Region:
    """Return the region with the factors of its sums multiplied afterwards, where rows share a factor."""
    steps: list[AnyStep] = []
    known: dict[str, AnyStep] = {}
    for step in region.steps:
        known[step.value] = step
        steps += _pull(step, region, known) if isinstance(step, Reduction) and step.op == "sum" else [step]
    if len(steps) == len(region.steps):
        return region
    required = required_values(steps, region.stores)
    return msgspec.structs.replace(
        region,
        steps=tuple(step for step in steps if step.value in required),
        loads=tuple(load for load in region.loads if load.value in required),
    )


def _pull(total: Reduction, region: Region, known: dict[str, AnyStep]) -> list[AnyStep]:
    """The steps that compute a sum; the sum alone if it has no factor that can be pulled out of it."""
    row = {axis.name for axis in region.row}
    outer = region.axes_of[total.arg] - row
    operands = _split_product(total.arg, known)
    factors = [
        one for one in operands if not region.axes_of[one] & row and outer - region.axes_of[one] and region.pass_of[one]
    ]
    others = [one for one in operands if one not in factors]
    if not factors or not all(_normalizes(one, others, known) for one in factors):
        return [total]
    steps: list[AnyStep] = []
    value = others[0]
    for number, other in enumerate(others[1:]):
        name = f"{total.value}_term{number}"
        steps.append(Step(value=name, op="mul", args=(value, other), dtype=total.dtype))
        value = name
    name = f"{total.value}_unscaled"
    steps.append(Reduction(value=name, op="sum", arg=value, dtype=total.dtype))
    for number, factor in enumerate(factors, 1):
        scaled = total.value if number == len(factors) else f"{total.value}_scaled{number}"
        steps.append(Step(value=scaled, op="mul", args=(name, factor), dtype=total.dtype))
        name = scaled
    return steps


def _split_product(value: str, known: dict[str, AnyStep]) -> list[str]:
    """The values whose product a value is."""
    step = known.get(value)
    if not isinstance(step, Step) or step.op != "mul" or not all(isinstance(arg, str) for arg in step.args):
        return [value]
    return [one for arg in step.values for one in _split_product(arg, known)]


def _normalizes(factor: str, others: list[str], known: dict[str, AnyStep]) -> bool:
    """Whether a factor is 1 / sqrt(mean of squares of one of the others + a constant)."""
    step = known.get(factor)
    if not isinstance(step, Step) or step.op != "rsqrt":
        return False
    inside = known.get(step.values[0])
    while isinstance(inside, Step) and _is_shifted_or_scaled(inside):
        inside = known.get(inside.values[0])
    if not isinstance(inside, Reduction) or inside.op not in ("sum", "mean"):
        return False
    square = known.get(inside.arg)
    if not isinstance(square, Step) or square.op != "mul" or len(set(square.args)) > 1:
        return False
    return square.values[0] in others


def _is_shifted_or_scaled(step: Step) -> bool:
    """Whether a step adds a number, or multiplies or divides by one, that is positive."""
    if step.op not in ("add", "mul", "div") or not step.values or step.args[0] != step.values[0]:
        return False
    return all(not isinstance(arg, str) and arg >= 0 for arg in step.args[1:])
