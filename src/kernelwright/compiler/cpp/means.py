"""Means that are exact where all elements are equal, by reductions that run in one pass."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kernelwright.compiler.regions.region import Reduction, Region, Scan, Step


def lower_means(region: Region) -> Region:
    """The same region with each mean as a sum over a count, kept between the least and the largest element; the sum of
    what is FP32 in FP64 is exact enough without."""
    widened = {step.value for step in region.steps if isinstance(step, Step) and step.op == "cast"}
    steps = tuple(new for step in region.steps for new in _lower_mean(step, region.row_size, widened))
    return region if steps == region.steps else msgspec.structs.replace(region, steps=steps)


def _lower_mean(step: Step | Reduction | Scan, count: int, widened: set[str]) -> Iterator[Step | Reduction | Scan]:
    if not isinstance(step, Reduction) or step.op != "mean":
        yield step
        return
    exact = step.dtype == "float64" and step.arg in widened
    names = {op: f"{step.value}_{op}" for op in (("sum",) if exact else ("sum", "least", "most"))}
    for op, name in names.items():
        yield Reduction(value=name, op=op, arg=step.arg, dtype=step.dtype)
    yield Step(value=step.value, op="div" if exact else "mean_of", args=(*names.values(), count), dtype=step.dtype)
