"""Capture of a program and its partition into regions, of which equal ones are tuned and written once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import fx

from kernelwright.compiler.capture.capture import CapturedProgram, capture_with_training_mode
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.regions.call import CallRegion, plan_calls
from kernelwright.compiler.regions.contraction import ContractionRegion
from kernelwright.compiler.regions.contraction_planning import plan_contractions
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.rewrites.registry import OFF_BY_DEFAULT
from kernelwright.core.optimization import AppliedRewrite, FallbackOperator
from kernelwright.problems import Problem


@dataclass(frozen=True)
class RegionPlan:
    """A captured program with its candidate regions and the operators that no region supports.

    Attributes:
        same_as: by the name of a region that repeats an earlier one with other tensors, the name of that one.
        refused: the nodes that torch runs, with the reason for each.
    """

    captured: CapturedProgram
    regions: tuple[PlannedRegion, ...]
    fallbacks: tuple[FallbackOperator, ...]
    same_as: dict[str, str] = field(default_factory=dict)
    refused: dict[fx.Node, str] = field(default_factory=dict)

    def count(self, name: str) -> int:
        """How often a region and its repetitions occur."""
        return 1 + sum(original == name for original in self.same_as.values())


def plan_problem(problem: Problem, device: str, disabled: Set[str] = OFF_BY_DEFAULT) -> RegionPlan:
    """Capture a problem's program on its inputs of seed 0 and partition its graph into regions.

    Args:
        disabled: names of rewrites that are not applied; see `rewrites.registry`.

    Raises:
        ProblemError: the program cannot be captured.
    """
    return plan_program(problem.program_on(device), *problem.inputs(device, 0), disabled)


def plan_program(
    program: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], disabled: Set[str] = OFF_BY_DEFAULT
) -> RegionPlan:
    """Capture one call of a program and partition its graph into regions; `disabled` as for `plan_problem`.

    Raises:
        ProblemError: the program cannot be captured.
    """
    with torch.no_grad():
        return plan_captured(capture_with_training_mode(program, args, kwargs, disabled))


def plan_captured(captured: CapturedProgram, prefix: str = "region") -> RegionPlan:
    """Partition a captured graph into regions; `prefix` is that of their names."""
    planned, reasons = plan_regions(captured.graph, prefix)
    regions = plan_contractions(captured.graph, planned, prefix)
    regions += plan_calls(captured.graph, [region.name for region, _ in regions], prefix)
    in_regions = {node for _, nodes in regions for node in nodes}
    refused = {
        node: reason for node, reason in reasons.items() if node not in in_regions and op_name(node.target) != "getitem"
    }
    named = [(str(node.target), reason) for node, reason in refused.items()]
    fallbacks = tuple(
        FallbackOperator(operator=op, reason=reason, count=count) for (op, reason), count in Counter(named).items()
    )
    parts = tuple(PlannedRegion(region, tuple(nodes)) for region, nodes in regions)
    return RegionPlan(captured, parts, fallbacks, find_repetitions(parts), refused)


def merge_fallbacks(plans: Sequence[RegionPlan]) -> tuple[FallbackOperator, ...]:
    """The operators that torch runs, those of all plans counted together."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in (one for plan in plans for one in plan.fallbacks):
        counts[one.operator, one.reason] += one.count
    return tuple(FallbackOperator(operator=op, reason=reason, count=count) for (op, reason), count in counts.items())


def merge_rewrites(plans: Sequence[RegionPlan]) -> tuple[AppliedRewrite, ...]:
    """The rewrites that were applied, those of one name in all plans as one."""
    merged: dict[str, AppliedRewrite] = {}
    for one in (one for plan in plans for one in plan.captured.rewrites):
        before = merged.get(one.name)
        merged[one.name] = (
            one
            if before is None
            else msgspec.structs.replace(
                before,
                count=before.count + one.count,
                flops_saved=before.flops_saved + one.flops_saved,
                bytes_saved=before.bytes_saved + one.bytes_saved,
            )
        )
    return tuple(merged.values())


def find_repetitions(parts: Sequence[PlannedRegion]) -> dict[str, str]:
    """By the name of a region that computes the same as an earlier one on other tensors, the name of that one."""
    first: dict[str, str] = {}
    repeated = {}
    for part in parts:
        text = anonymous_text(part)
        if text in first:
            repeated[part.region.name] = first[text]
        else:
            first[text] = part.region.name
    return repeated


def anonymous_text(part: PlannedRegion) -> str:
    """The text of a region without its name, with tensors, values and axes numbered in the order of their use."""
    numbers: dict[str, str] = {}

    def number(name: Any) -> Any:
        return numbers.setdefault(name, f"_{len(numbers)}") if isinstance(name, str) else name

    def renamed(one: Any) -> Any:
        """One load, step, operand or store; operators and dtypes keep their names."""
        fields = msgspec.to_builtins(one)
        for side in ("left", "right"):
            if side in fields:
                fields[side]["buffer"] = number(fields[side]["buffer"])
        if fields.get("bias"):
            fields["bias"] = [number(fields["bias"][0]), fields["bias"][1]]
        for key in ("value", "buffer", "arg", "name"):
            if key in fields:
                fields[key] = number(fields[key])
        if "args" in fields:
            fields["args"] = [number(arg) for arg in fields["args"]]
        if "strides" in fields:
            fields["strides"] = {number(axis): stride for axis, stride in fields["strides"].items()}
        for index in fields.get("windows", ()):
            index["steps"] = {number(axis): step for axis, step in index["steps"].items()}
        return fields

    region = part.region
    if isinstance(region, CallRegion):
        tensors = {parameter: (number(name), dtype) for parameter, (name, dtype) in region.tensors.items()}
        outputs = {index: renamed(store) for index, store in region.outputs.items()}
        return f"{region.operator} {tensors} {region.shapes} {region.literals} {outputs}"
    contraction = [region.contraction] if isinstance(region, ContractionRegion) else []
    loads = region.epilogue.loads if isinstance(region, ContractionRegion) else region.loads
    parts = (*contraction, *region.outer, "rows", *region.row, *loads, *region.steps, *region.stores)
    return "\n".join(one if isinstance(one, str) else repr(renamed(one)) for one in parts)
