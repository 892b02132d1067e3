"""Means that are exact where all elements are equal, as reductions of a single pass."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kernelwright.compiler.regions.region import Reduction, Region, Scan, Step


def lower_means(region: Region) -> Region:
    """The region with each mean as a sum over a count, clamped to the smallest and largest element.

    A sum in FP64 of FP32 values is exact enough without the clamp.
    """
    widened = {step.value for step in region.steps if isinstance(step, Step) and step.op == "cast"}
    steps = tuple(new for step in region.steps for new in _lower_mean(step, region.row_size, widened))
    return region if steps == region.steps else msgspec.structs.replace(region, steps=steps)


def _lower_mean(step: Step | Reduction | Scan, count: int, widened: set[str]) -> Iterator[Step | Reduction | Scan]:
    if not isinstance(step, Reduction) or step.op != "mean":
        yield step
        return
    is_exact = step.dtype == "float64" and step.arg in widened
    names = {op: f"{step.value}_row_{op}" for op in (("sum",) if is_exact else ("sum", "min_num", "max_num"))}
    for op, name in names.items():
        yield Reduction(value=name, op=op, arg=step.arg, dtype=step.dtype)
    op = "div" if is_exact else "clamped_mean"
    yield Step(value=step.value, op=op, args=(*names.values(), count), dtype=step.dtype)
