"""One optimisation: the program on its device, its inputs, its plan, the tuned regions, and what went wrong.

A fault in a region or in a step costs that region or step alone: it is noted, and torch runs the rest.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.assembly.channels_last_layer import to_channels_last
from kernelwright.compiler.assembly.graph_layer import GeneratedGraph, GraphLayer
from kernelwright.compiler.assembly.kernel_layer import KernelLayer
from kernelwright.compiler.budget import Budget, OutOfTime, time_limit
from kernelwright.compiler.capture.backward import build_gradient, find_trainable_nodes
from kernelwright.compiler.capture.dynamo_graphs import record_graphs
from kernelwright.compiler.capture.recurrences import RECURRENCES
from kernelwright.compiler.differentiable import RegionGradient
from kernelwright.compiler.forward_codegen import PlannedRegion, require_writable_constants
from kernelwright.compiler.graph_planning import GraphPlan, plan_graph, share_repetitions
from kernelwright.compiler.kernel_source import summarize
from kernelwright.compiler.planning import RegionPlan, plan_program
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.rewrites.registry import OFF_BY_DEFAULT
from kernelwright.compiler.tuning import TuningResult
from kernelwright.compiler.tuning_order import MIN_TUNING_S, NUM_BRIEF_CONFIGS, RegionTuner, RegionTuning
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.optimization import OWN_KERNELS, TORCH, RegionOutcome
from kernelwright.core.progress import report_stage
from kernelwright.core.verdict import Reason
from kernelwright.measure.clock import wall_s
from kernelwright.problems import Problem
from kernelwright.problems.state import replaced_values
from kernelwright.verification.verdict import MIN_SETS

VARIANTS_S, MAX_VARIANTS_SHARE = {"cpu": 2.0, "cuda": 8.0}, 0.25
"""What the whole program takes with the tuned kernels, also in a CUDA graph: built, checked and timed; and its share of
the time at most."""
NUM_BUILDS = 2
"""The verification of a file builds the program, and copies the state of the original into it."""
NOT_CAPTURED = "the program is not captured, so that no region becomes a kernel"
MAX_CAPTURE_SHARE = 0.3
"""Longer captures are those of unrolled loops, whose kernels there is no time to tune."""


@dataclass
class OptimizationSession:
    """Owns everything of one optimisation.

    Attributes:
        plan: None where the program cannot be captured as one graph.
        graphs: the plans of the graphs that Dynamo captures of such a program.
        opaque: operators that Dynamo must not trace: `namespace.name`.
        tuned: the regions with their results; a repetition has none of its own.
        gradients: backward passes of the regions that run as kernels, where they are needed.
        backward: the regions of these passes, with their results.
        faults: what failed, and what it cost, one sentence each.
        rejected: the variants of the whole program that verification rejected.
        channels_last: the plan is made for images and weights in channels-last order.
        trained: the plan is that of a program whose gradients are computed.
        building_s, drawing_s, planning_s: seconds that the program, its inputs and the plan took; `building_s` begins
            as those that the program took before it was moved to its device.
    """

    problem: Problem
    tuner: RegionTuner
    budget: Budget
    plan: RegionPlan | None = None
    graphs: tuple[GraphPlan, ...] = ()
    opaque: tuple[str, ...] = ()
    tuned: list[tuple[PlannedRegion, TuningResult]] = field(default_factory=list)
    gradients: list[RegionGradient] = field(default_factory=list)
    backward: list[tuple[PlannedRegion, TuningResult]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    channels_last: bool = False
    trained: bool = False
    building_s: float = 0.0
    drawing_s: float = 0.0
    planning_s: float = 0.0

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return self.tuner.device

    @cached_property
    def program(self) -> Callable[..., Any]:
        """The program, on its device."""
        start_s = wall_s()
        program = self.problem.program_on(self.device)
        self.building_s += wall_s() - start_s
        return program

    @cached_property
    def inputs(self) -> tuple[list[Any], dict[str, Any]]:
        """The inputs of seed 0, on the device."""
        start_s = wall_s()
        inputs = self.problem.inputs(self.device, 0)
        self.drawing_s = wall_s() - start_s
        return inputs

    @property
    def rebuilding_s(self) -> float:
        """What the verification of a file takes to build the program, and to draw the inputs of each of its sets."""
        return NUM_BUILDS * self.building_s + MIN_SETS * self.drawing_s

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
        start_s = wall_s()
        report_stage("capturing the program", 120)
        with self.isolated(NOT_CAPTURED, self._capture_limit_s), self._in_layout() as (args, kwargs):
            plan = plan_program(self.program, args, kwargs, disabled)
            require_writable_constants(plan.captured)
            self.plan = trainable_plan(plan) if train else plan
        if self.plan is None and not train and self.budget.allows(MIN_TUNING_S, "graphs of torch.compile"):
            self._plan_graphs(disabled)
        self.planning_s = wall_s() - start_s

    def _plan_graphs(self, disabled: Set[str]) -> None:
        """Plan the graphs that Dynamo captures of a program that is no single graph; a fault costs its graph alone."""
        report_stage("capturing the graphs of torch.compile", 120)
        reason, planned = self.faults[-1].removeprefix(f"{NOT_CAPTURED}: "), []
        with (
            self.isolated("torch.compile captures no graphs either", self._capture_limit_s),
            self._in_layout() as (args, kwargs),
        ):
            recording = record_graphs(self.program, args, kwargs)
            for number, graph in enumerate(recording.graphs.values(), 1):
                with self.isolated(f"graph {number} stays with torch"):
                    planned.append(plan_graph(graph, number, self.program, disabled))
            self.graphs = share_repetitions([graph for graph in planned if graph])
            self.opaque = tuple(recording.opaque)
            if self.graphs:
                self.faults = [one for one in self.faults if not one.startswith(NOT_CAPTURED)]
                self.faults.append(recording.summary(reason))

    @property
    def plans(self) -> tuple[RegionPlan, ...]:
        """The plan of the whole program, or those of its graphs."""
        return (self.plan,) if self.plan else tuple(graph.plan for graph in self.graphs)

    def drop_plan(self) -> None:
        """Forget the plan and what was tuned."""
        self.plan, self.graphs, self.tuned = None, (), []

    def compile_ahead(self) -> None:
        """Start to compile the kernels of the regions in other processes, the first config of each region first."""
        parts = self._unique_regions() if self.plans else []
        for count in (NUM_BRIEF_CONFIGS, None):
            for part in sorted(parts, key=lambda part: -sum(part.region.bytes_moved)):
                with suppress(Exception):  # it occurs again where the region is tuned
                    self.tuner.compile_ahead(part.region, count)

    def tune_regions(self, later_s: float = 0.0) -> None:
        """Tune the regions as long as there is time.

        Args:
            later_s: what other steps take after the whole program was timed with its kernels.
        """
        if not self.plans:
            return
        unique = self._unique_regions()
        inputs_of: dict[str, list[torch.Tensor]] = {}
        with self.isolated("the inputs of the regions are not known, so that none becomes a kernel"):
            inputs_of = self._record_inputs({part.region.name for part in unique})
        captured_of = {part.region.name: plan.captured for plan in self.plans for part in plan.regions}
        tuning = RegionTuning(self.tuner, self.budget, self.isolated, self.count, captured_of, inputs_of)
        variants_s = min(VARIANTS_S[self.device], MAX_VARIANTS_SHARE * self.budget.remaining_s)
        with self.budget.keep(variants_s + later_s):
            tuning.tune(unique)
        self.tuner.stop_compiling()
        self.tuned = [(part, tuning.results.get(part.region.name) or untuned(part, "not tuned")) for part in unique]

    def _record_inputs(self, names: Set[str]) -> dict[str, list[torch.Tensor]]:
        """The inputs of the named regions; the values of the graphs are not needed any more."""
        bound: list[tuple[RegionPlan, Sequence[Any]]] = [(graph.plan, graph.values) for graph in self.graphs]
        self.graphs = tuple(replace(graph, values=()) for graph in self.graphs)
        inputs_of = {}
        with self._in_layout() as (args, kwargs):
            if self.plan:
                bound = [(self.plan, bind_placeholders(self.plan.captured, self.program, args, kwargs))]
            for plan, values in bound:
                parts = [part for part in plan.regions if part.region.name in names]
                recorded = record_region_inputs(plan.captured, parts, values)
                inputs_of |= {part.region.name: inputs for part, inputs in zip(parts, recorded, strict=True)}
        return inputs_of

    def _unique_regions(self) -> list[PlannedRegion]:
        return [part for plan in self.plans for part in plan.regions if part.region.name not in plan.same_as]

    def count(self, name: str) -> int:
        """How often a region and its repetitions occur; all graphs know the same repetitions."""
        return self.plans[0].count(name) if self.plans else 1

    def tune_gradients(self) -> None:
        """Build the backward pass of every region that runs as a kernel, and tune the regions of that pass."""
        if self.plan is None:
            return
        captured, parts = self.plan.captured, self._kernel_regions(self.plan)
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

    def _kernel_regions(self, plan: RegionPlan) -> list[PlannedRegion]:
        """The regions of a plan that run as kernels, repetitions too, in program order."""
        with_kernel = {part.region.name for part, result in self.tuned if result.kernel}
        return [part for part in plan.regions if plan.same_as.get(part.region.name, part.region.name) in with_kernel]

    def kernel_layer(self) -> KernelLayer | GraphLayer | None:
        """The layer of the output file that runs the regions' kernels; None where none has one.

        A rewritten program is a layer without kernels too, unless it is trained: it has no gradients of its own then.
        """
        if self.plan is None:
            return self._graph_layer()
        parts = self._kernel_regions(self.plan)
        if not (parts or (self.plan.captured.is_rewritten and not self.trained)):
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

    def _graph_layer(self) -> GraphLayer | None:
        """The layer that runs kernels within the graphs of torch.compile; None where none has any."""
        generated = [
            GeneratedGraph(graph.signature, graph.plan.captured, self._kernel_regions(graph.plan))
            for graph in self.graphs
        ]
        if not (generated := [one for one in generated if one.regions or one.captured.is_rewritten]):
            return None
        kernels = [result.kernel for _, result in self.tuned if result.kernel]
        return GraphLayer(generated, kernels, self.device, self.graphs[0].plan.same_as, self.opaque)

    def outcomes(self) -> tuple[RegionOutcome, ...]:
        """The outcome of each region, with the number of its occurrences."""
        return tuple(
            msgspec.structs.replace(result.outcome, num_occurrences=self.count(part.region.name))
            for part, result in [*self.tuned, *self.backward]
        )


def trainable_plan(plan: RegionPlan) -> RegionPlan:
    """A plan without repetitions, whose regions have gradients of their own; recurrences stay with torch, whose
    backward pass has no graph."""
    regions = [part for part in plan.regions if RECURRENCES.keys().isdisjoint(s.op for s in part.region.steps)]
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
