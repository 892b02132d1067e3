"""Optimise one program: load, capture, partition into regions, tune each, assemble the file, verify, benchmark."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from kernelwright.benchmark import bench
from kernelwright.benchmark.variants import require_baselines
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.capture.backward import build_gradient, find_trainable_nodes
from kernelwright.compiler.capture.capture import CapturedProgram, capture_with_training_mode
from kernelwright.compiler.cuda_graph import suggest_cuda_graph
from kernelwright.compiler.differentiable import RegionGradient
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.output_file import assemble, emit_torch_file
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.tuning import Tuner, TuningResult
from kernelwright.core.cache import write_atomic
from kernelwright.core.errors import UsageError
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import FallbackOperator, Optimization, RegionOutcome
from kernelwright.core.paths import require_writable
from kernelwright.core.progress import report_stage
from kernelwright.core.units import time_text
from kernelwright.core.verdict import Verdict
from kernelwright.diagnosis import why
from kernelwright.machines import machine as machine_here
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.sandbox import ForkServer
from kernelwright.verification.transport.runners import PRELOAD_MODULES
from kernelwright.verification.verdict import verify

NUM_PAIRS = 5


@dataclass(frozen=True)
class RegionPlan:
    """A captured program with its candidate regions and the operators that no region supports."""

    captured: CapturedProgram
    regions: tuple[PlannedRegion, ...]
    fallbacks: tuple[FallbackOperator, ...]


def optimize_file(
    target: str,
    out: str | None = None,
    *,
    device: str = "cpu",
    baselines: Sequence[str] = ("eager", "compile"),
    train: bool = False,
    plan_only: bool = False,
) -> Optimization:
    """Write a file with a verified, faster `ModelNew`; if nothing is faster, `ModelNew` is the original program.

    A rejected file is kept for inspection as `NAME_rejected.py`.

    Args:
        target: a problem, as for `kw verify`.
        out: output path; by default `NAME_optimized.py` next to the problem.
        train: generate backward kernels too.
        plan_only: stop after partitioning; nothing is generated or written.
    Raises:
        ProblemError: the program cannot be captured.
        UsageError: `out` would overwrite the problem, or cannot be written.
    """
    require_baselines(baselines)
    path = Path(out or _default_path(target))
    if path.exists() and path.resolve() == Path(target.partition(":")[0]).resolve():
        raise UsageError(f"{path} is the problem itself", next="--out another_name.py")
    require_writable(path, "--out")
    problem = load_problem(target)
    if plan_only:
        return _plan_only_record(problem, machine_here(device), plan_problem(problem, device))
    diagnosis = why(problem, device=device)
    machine = diagnosis.machine
    planned = plan_problem(problem, device)
    tuner = Tuner(backend_for(device), device, machine, "compile" in baselines)
    tuned = tune_regions(problem, planned, device, tuner)
    gradients, backward = tune_gradients(problem, planned, tuned, device, tuner) if train else ([], [])
    header = _file_header(problem, tuned, machine)
    source = assemble_source(problem, planned, tuned, backward, gradients, header, device)
    with tempfile.TemporaryDirectory() as folder, ForkServer(PRELOAD_MODULES) as fork_server:
        staged = StagedFile(problem, target, Path(folder) / path.name, device, fork_server)
        verdict, torch_fallback = staged.verify_source(source), None
        kernels = winning_kernels(tuned)[1]
        if (
            verdict.accepted
            and not train
            and (torch_fallback := tuner.choose_whole_program(problem, staged.load_program(), kernels))
        ):
            variant = torch_fallback[0]
            torch_source = emit_torch_file(problem, variant, f"{problem.name}: {variant} is the fastest variant here.")
            torch_verdict = staged.verify_source(torch_source)
            if torch_verdict.accepted:
                source, verdict = torch_source, torch_verdict
            else:  # faster but wrong: keep the verified kernels
                torch_fallback = None
    rejected, timed = path.with_stem(f"{path.stem}_rejected"), None
    write_atomic(path if verdict.accepted else rejected, source.encode())
    if verdict.accepted:
        timed = bench(
            target, str(path), device=device, baselines=baselines, pairs=NUM_PAIRS, check=False, machine=machine
        )
        if rejections := [one for one in timed.verdicts if not one.accepted]:
            path.replace(rejected)
            verdict, timed = msgspec.structs.replace(verdict, accepted=False, reason=rejections[0].reason), None
    path = path if verdict.accepted else rejected
    verdict = msgspec.structs.replace(verdict, candidate=str(path))
    record = summarize_optimization(problem, machine, planned, [*tuned, *backward], source, verdict, torch_fallback)
    notes = [*record.notes, *tuner.notes()]
    if timed and device == "cuda" and not train:
        notes.append(suggest_cuda_graph(problem, lambda: load_candidate(str(path), problem, device).program, machine))
    return msgspec.structs.replace(
        record, diagnosis=diagnosis, output_file=str(path), bench=timed, notes=tuple(filter(None, notes))
    )


@dataclass(frozen=True)
class StagedFile:
    """A file verified in a temporary folder, so that an existing output file is replaced only by a verified one."""

    problem: Problem
    target: str
    path: Path
    device: str
    fork_server: ForkServer

    def verify_source(self, source: str) -> Verdict:
        """Verify a source text.

        Timed calls are left to the benchmark, which checks them itself.

        Raises:
            RuntimeWarning: the kernels do not compile.
        """
        write_atomic(self.path, source.encode())
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "kernels do not compile here", RuntimeWarning)
            self.load_program()
        return verify(
            self.target, str(self.path), device=self.device, fork_server=self.fork_server, check_timed_calls=False
        )

    def load_program(self) -> Callable[..., Any]:
        """Load the most recently verified source."""
        return load_candidate(str(self.path), self.problem, self.device).program


def plan_problem(problem: Problem, device: str) -> RegionPlan:
    """Capture a program on the inputs of seed 0 and partition its graph into regions."""
    report_stage("capturing the program", 120)
    args, kwargs = problem.inputs(device, 0)
    with torch.no_grad():
        captured = capture_with_training_mode(problem.program_on(device), args, kwargs)
    regions, refused = plan_regions(captured.graph)
    named = [(str(node.target), reason) for node, reason in refused.items() if op_name(node.target) != "getitem"]
    fallbacks = tuple(
        FallbackOperator(operator=op, reason=reason, count=count) for (op, reason), count in Counter(named).items()
    )
    return RegionPlan(captured, tuple(PlannedRegion(region, tuple(nodes)) for region, nodes in regions), fallbacks)


def tune_regions(
    problem: Problem, planned: RegionPlan, device: str, tuner: Tuner
) -> list[tuple[PlannedRegion, TuningResult]]:
    """Tune every region on the inputs of seed 0; configs timed before come from the trial store."""
    program = problem.program_on(device)
    args, kwargs = problem.inputs(device, 0)
    values = bind_placeholders(planned.captured, program, args, kwargs)
    region_inputs = record_region_inputs(planned.captured, planned.regions, values)
    with torch.no_grad():
        return [
            (part, tuner.tune(part.region, build_reference(planned.captured, part), inputs))
            for part, inputs in zip(planned.regions, region_inputs, strict=True)
        ]


def tune_gradients(
    problem: Problem,
    planned: RegionPlan,
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
    device: str,
    tuner: Tuner,
) -> tuple[list[RegionGradient], list[tuple[PlannedRegion, TuningResult]]]:
    """Build the backward pass of every region that runs as a kernel, and tune the regions of that pass.

    Returns:
        The gradients, and the planned backward regions with their tuning results.
    """
    program, (args, kwargs) = problem.program_on(device), problem.inputs(device, 0)
    trainable = find_trainable_nodes(planned.captured, program, args, kwargs)
    by_name = {node.name: node for node in planned.captured.graph.nodes}
    parts = [part for part, result in tuned if result.kernel]
    values = bind_placeholders(planned.captured, program, args, kwargs)
    gradients, results = [], []
    for part, inputs in zip(parts, record_region_inputs(planned.captured, parts, values), strict=True):
        names = part.region.reads
        input_indices = [index for index, name in enumerate(names) if by_name[name] in trainable]
        if not input_indices:
            continue
        reference = build_reference(planned.captured, part)
        gradient = build_gradient(reference, names, inputs, input_indices)
        regions, _ = plan_regions(gradient.captured.graph, f"{part.region.name}_backward")
        backward = [PlannedRegion(region, tuple(nodes)) for region, nodes in regions]
        examples = gradient.example_inputs(inputs, reference(*inputs))
        backward_inputs = record_region_inputs(gradient.captured, backward, examples)
        backward_results = [
            (one, tuner.tune(one.region, build_reference(gradient.captured, one), region_inputs))
            for one, region_inputs in zip(backward, backward_inputs, strict=True)
        ]
        results += backward_results
        with_kernels = tuple(one for one, result in backward_results if result.kernel)
        gradients.append(RegionGradient(part.region, gradient, with_kernels))
    return gradients, results


def winning_kernels(
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
) -> tuple[list[PlannedRegion], list[RegionKernel]]:
    """Return the regions that run as kernels, and the kernel of each."""
    winners = [(part, result.kernel) for part, result in tuned if result.kernel]
    return [part for part, _ in winners], [kernel for _, kernel in winners]


def assemble_source(
    problem: Problem,
    planned: RegionPlan,
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
    backward: Sequence[tuple[PlannedRegion, TuningResult]],
    gradients: Sequence[RegionGradient],
    about: str,
    device: str,
) -> str:
    """Generate the file with the winning kernels; `about` is its docstring."""
    parts, kernels = winning_kernels(tuned)
    kernels = [*kernels, *winning_kernels(backward)[1]]
    program, (args, kwargs) = problem.program_on(device), problem.inputs(device, 0)
    trainable = find_trainable_nodes(planned.captured, program, args, kwargs) if gradients else set()
    return assemble(problem, planned.captured, parts, kernels, about, device, gradients, trainable)


def summarize_optimization(
    problem: Problem,
    machine: Machine,
    planned: RegionPlan,
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
    source: str,
    verdict: Verdict,
    torch_fallback: tuple[str, str] | None = None,
) -> Optimization:
    """Build the record of an optimised program, without its diagnosis, file and benchmark.

    Args:
        torch_fallback: the torch variant that runs the whole program instead of its kernels, and why.
    """
    variant, reason = torch_fallback or ("", "")
    notes = [f"the file runs the whole program with {variant}: {reason}"] if variant else []
    if planned.captured.training and not variant and any(result.kernel for _, result in tuned):
        modes = {"train" if mode else "eval" for mode in planned.captured.training}
        notes.append(
            f"the kernels run with the modules in {' and '.join(sorted(modes))} mode, as at capture; otherwise the "
            f"original program runs"
        )
    return Optimization(
        problem=problem.name,
        machine=machine,
        diagnosis=None,
        regions=tuple(result.outcome for _, result in tuned),
        fallbacks=planned.fallbacks,
        output_file="",
        source=source,
        verdict=verdict,
        bench=None,
        whole_program_winner=variant,
        notes=tuple(notes),
    )


def _file_header(problem: Problem, tuned: Sequence[tuple[PlannedRegion, TuningResult]], machine: Machine) -> str:
    before = sum(result.outcome.before_us for _, result in tuned)
    after = sum(result.outcome.after_us for _, result in tuned)
    return (
        f"{problem.name} with kernels generated by Kernelwright for {machine.name}.\n\n"
        f"Its regions took {time_text(before)} and now take {time_text(after)}. "
        f"ModelNew replaces the original program; this file does not need Kernelwright."
    )


def _plan_only_record(problem: Problem, machine: Machine, planned: RegionPlan) -> Optimization:
    regions = tuple(
        RegionOutcome(
            name=part.region.name,
            summary="",
            text=str(part.region),
            bytes_moved=sum(part.region.bytes_moved),
            floor_us=0.0,
            limiter="",
            before_us=0.0,
            predicted_us=0.0,
            after_us=0.0,
            winner="",
            winner_reason="",
        )
        for part in planned.regions
    )
    return Optimization(
        problem=problem.name,
        machine=machine,
        diagnosis=None,
        regions=regions,
        fallbacks=planned.fallbacks,
        output_file="",
        source="",
        verdict=None,
        bench=None,
    )


def _default_path(target: str) -> str:
    path = Path(target.partition(":")[0])
    name = target.partition(":")[2] or path.stem
    return str(path.with_name(f"{name}_optimized.py"))
