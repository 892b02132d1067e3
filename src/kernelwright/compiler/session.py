"""One optimisation: the program on its device, its inputs, its plan, the tuned regions, and what went wrong.

A fault in a region or in a step costs that region or step alone: it is noted, and torch runs the rest.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import msgspec
import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.assembly.channels_last_layer import to_channels_last
from kernelwright.compiler.assembly.kernel_layer import KernelLayer
from kernelwright.compiler.backends import Backend
from kernelwright.compiler.budget import Budget, OutOfTime, time_limit
from kernelwright.compiler.capture.backward import build_gradient, find_trainable_nodes
from kernelwright.compiler.capture.recurrences import RECURRENCES
from kernelwright.compiler.differentiable import RegionGradient
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.kernel_source import summarize
from kernelwright.compiler.planning import RegionPlan, plan_program
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.contraction import AnyRegion
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.rewrites.registry import OFF_BY_DEFAULT
from kernelwright.compiler.tuning import TuningResult
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import OWN_KERNELS, TORCH, RegionOutcome
from kernelwright.core.progress import report_stage
from kernelwright.core.verdict import Reason
from kernelwright.problems import Problem
from kernelwright.problems.state import replaced_values

MIN_REGION_S, MIN_TUNING_S = 3.0, 1.0
"""Time that a region gets at least, and below which none is tuned."""
MAX_CAPTURE_SHARE = 0.3
"""Longer captures are those of unrolled loops, whose kernels there is no time to tune."""


class RegionTuner(Protocol):
    """Finds the fastest kernel of a region; see `tuning.Tuner`."""

    backend: Backend
    device: str
    machine: Machine

    def tune(
        self, region: AnyRegion, reference: fx.GraphModule, inputs: Sequence[torch.Tensor], limit_s: float = ...
    ) -> TuningResult:
        """See `Tuner.tune`."""
        ...

    def compile_ahead(self, region: AnyRegion) -> list[str]:
        """See `Tuner.compile_ahead`."""
        ...

    def notes(self) -> list[str]:
        """Notes for the user on how the tuning ran."""
        ...


@dataclass
class OptimizationSession:
    """Owns everything of one optimisation.

    Attributes:
        plan: None where the program cannot be captured.
        tuned: the regions with their results; a repetition has none of its own.
        gradients: backward passes of the regions that run as kernels, where they are needed.
        backward: the regions of these passes, with their results.
        faults: what failed, and what it cost, one sentence each.
        rejected: the variants of the whole program that verification rejected.
        channels_last: the plan is made for images and weights in channels-last order.
        trained: the plan is that of a program whose gradients are computed.
    """

    problem: Problem
    tuner: RegionTuner
    budget: Budget
    plan: RegionPlan | None = None
    tuned: list[tuple[PlannedRegion, TuningResult]] = field(default_factory=list)
    gradients: list[RegionGradient] = field(default_factory=list)
    backward: list[tuple[PlannedRegion, TuningResult]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    channels_last: bool = False
    trained: bool = False

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return self.tuner.device

    @cached_property
    def program(self) -> Callable[..., Any]:
        """The program, on its device."""
        return self.problem.program_on(self.device)

    @cached_property
    def inputs(self) -> tuple[list[Any], dict[str, Any]]:
        """The inputs of seed 0, on the device."""
        return self.problem.inputs(self.device, 0)

    def release(self) -> None:
        """Free the inputs and cached device memory; the inputs are drawn again where they are needed."""
        self.__dict__.pop("inputs", None)
        torch._dynamo.reset()
        self.free_memory()

    def free_memory(self) -> None:
        """Return unused device memory to the device, also that of unreachable cycles: another process needs it."""
        if self.device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    @contextmanager
    def isolated(self, cost: str, limit_s: float | None = None) -> Iterator[None]:
        """Note an exception, or the end of the time, and go on; buffers that the program changes are restored.

        Args:
            cost: what is lost then: `the program is left to torch`.
        """
        try:
            limit_s = max(self.budget.remaining_s, MIN_TUNING_S) if limit_s is None else limit_s
            with self.problem.restore_buffers(), time_limit(limit_s):
                yield
        except OutOfTime:
            self.faults.append(f"{cost}: there was not enough time")
        except KernelwrightError as error:
            self.faults.append(f"{cost}: {error.message}")
        except torch.OutOfMemoryError:
            self.faults.append(f"{cost}: out of device memory")
        except Exception as error:  # of torch, of a compiler, or ours: the rest of the program is optimised
            line = next(iter(str(error).strip().splitlines()), "")[:200]
            self.faults.append(f"{cost}: {type(error).__name__}: {line}")

    @contextmanager
    def _in_layout(self) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """The inputs in the order of the plan; within the block the weights have it too."""
        if not self.channels_last:
            yield self.inputs
            return
        with replaced_values(self.problem.module, to_channels_last, buffers=False):
            yield pytree.tree_map_only(torch.Tensor, to_channels_last, self.inputs)

    def note_rejection(self, name: str, reason: Reason | None) -> None:
        """Note that verification rejected a variant of the whole program; without a reason, that it failed."""
        self.rejected.add(name)
        if reason:
            self.faults.append(f"{name} is not used: {reason.code}, {reason.detail}")

    @property
    def _capture_limit_s(self) -> float:
        return min(self.budget.remaining_s, MAX_CAPTURE_SHARE * self.budget.total_s)

    def make_plan(self, *, train: bool = False, disabled: Set[str] = OFF_BY_DEFAULT) -> None:
        """Capture the program and partition it into regions; with `train`, repetitions get gradients of their own.

        Args:
            disabled: names of rewrites that are not applied.
        """
        self.trained = train
        if not self.budget.allows(MIN_TUNING_S, OWN_KERNELS):
            return
        report_stage("capturing the program", 120)
        with (
            self.isolated("the program is not captured, so that no region becomes a kernel", self._capture_limit_s),
            self._in_layout() as (args, kwargs),
        ):
            plan = plan_program(self.program, args, kwargs, disabled)
            self.plan = trainable_plan(plan) if train else plan

    def tune_regions(self) -> None:
        """Tune the regions, the largest first, as long as there is time."""
        if self.plan is None:
            return
        captured, unique = self.plan.captured, self._unique_regions()
        inputs_of: dict[str, list[torch.Tensor]] = {}
        with (
            self.isolated("the inputs of the regions are not known, so that none becomes a kernel"),
            self._in_layout() as (args, kwargs),
        ):
            values = bind_placeholders(captured, self.program, args, kwargs)
            recorded = record_region_inputs(captured, unique, values)
            inputs_of = {part.region.name: inputs for part, inputs in zip(unique, recorded, strict=True)}
        results: dict[str, TuningResult] = {}
        ordered = self._largest_first(unique)
        for part in ordered if self.device == "cuda" else ():
            self.tuner.compile_ahead(part.region)
        for index, part in enumerate(ordered):
            inputs = inputs_of.pop(part.region.name, None)
            left = len(unique) - index
            limit_s = max(self.budget.remaining_s / left * 2, MIN_REGION_S)
            if inputs is None or not self.budget.allows(MIN_TUNING_S, f"kernels of {left} of {len(unique)} regions"):
                break
            with self.isolated(f"{part.region.name} stays with torch"), torch.no_grad():
                reference = build_reference(captured, part)
                results[part.region.name] = self.tuner.tune(part.region, reference, inputs, limit_s)
        self.tuned = [(part, results.get(part.region.name) or untuned(part, "not tuned")) for part in unique]

    def _unique_regions(self) -> list[PlannedRegion]:
        assert self.plan
        return [part for part in self.plan.regions if part.region.name not in self.plan.same_as]

    def _largest_first(self, parts: Sequence[PlannedRegion]) -> list[PlannedRegion]:
        """By the bytes that all occurrences move."""
        assert self.plan
        counts = {part.region.name: self.plan.count(part.region.name) for part in parts}
        return sorted(parts, key=lambda part: -sum(part.region.bytes_moved) * counts[part.region.name])

    def tune_gradients(self) -> None:
        """Build the backward pass of every region that runs as a kernel, and tune the regions of that pass."""
        if self.plan is None:
            return
        captured, parts = self.plan.captured, self._kernel_regions()
        trainable = self._trainable_nodes()
        by_name = {node.name: node for node in captured.graph.nodes}
        values = bind_placeholders(captured, self.program, *self.inputs)
        for part, inputs in zip(parts, record_region_inputs(captured, parts, values), strict=True):
            names = part.region.reads
            indices = [index for index, name in enumerate(names) if by_name[name] in trainable]
            if not indices:
                continue
            reference = build_reference(captured, part)
            gradient = build_gradient(reference, names, inputs, indices)
            regions, _ = plan_regions(gradient.captured.graph, f"{part.region.name}_backward")
            backward = [PlannedRegion(region, tuple(nodes)) for region, nodes in regions]
            examples = gradient.example_inputs(inputs, reference(*inputs))
            backward_inputs = record_region_inputs(gradient.captured, backward, examples)
            results = [
                (one, self.tuner.tune(one.region, build_reference(gradient.captured, one), region_inputs))
                for one, region_inputs in zip(backward, backward_inputs, strict=True)
            ]
            self.backward += results
            with_kernels = tuple(one for one, result in results if result.kernel)
            self.gradients.append(RegionGradient(part.region, gradient, with_kernels))

    def _trainable_nodes(self) -> set[fx.Node]:
        assert self.plan
        return find_trainable_nodes(self.plan.captured, self.program, *self.inputs)

    def _kernel_regions(self) -> list[PlannedRegion]:
        """The regions that run as kernels, repetitions too, in program order."""
        assert self.plan
        same_as = self.plan.same_as
        with_kernel = {part.region.name for part, result in self.tuned if result.kernel}
        return [part for part in self.plan.regions if same_as.get(part.region.name, part.region.name) in with_kernel]

    def kernel_layer(self) -> KernelLayer | None:
        """The layer of the output file that runs the regions' kernels; None where none has one.

        A rewritten program is a layer without kernels too, unless it is trained: it has no gradients of its own then.
        """
        parts = self._kernel_regions() if self.plan else []
        if self.plan is None or not (parts or (self.plan.captured.is_rewritten and not self.trained)):
            return None
        results = [*self.tuned, *self.backward]
        return KernelLayer(
            captured=self.plan.captured,
            regions=parts,
            kernels=[result.kernel for _, result in results if result.kernel],
            device=self.device,
            same_as=self.plan.same_as,
            gradients=self.gradients,
            trainable=self._trainable_nodes() if self.gradients else frozenset(),
        )

    def outcomes(self) -> tuple[RegionOutcome, ...]:
        """The outcome of each region, with the number of its occurrences."""
        return tuple(
            msgspec.structs.replace(
                result.outcome, num_occurrences=self.plan.count(part.region.name) if self.plan else 1
            )
            for part, result in [*self.tuned, *self.backward]
        )


def trainable_plan(plan: RegionPlan) -> RegionPlan:
    """A plan without repetitions, whose regions have gradients of their own; recurrences stay with torch, whose
    backward pass has no graph."""
    regions = [part for part in plan.regions if part.region.steps[0].op not in RECURRENCES]
    return replace(plan, same_as={}, regions=tuple(regions))


def untuned(part: PlannedRegion, reason: str) -> TuningResult:
    """The result of a region that was only planned."""
    outcome = RegionOutcome(
        name=part.region.name,
        summary=summarize(part.region),
        text=str(part.region),
        bytes_moved=sum(part.region.bytes_moved),
        floor_us=0.0,
        limiter="",
        before_us=0.0,
        predicted_us=0.0,
        after_us=0.0,
        winner=TORCH,
        winner_reason=reason,
    )
    return TuningResult(outcome, None)
