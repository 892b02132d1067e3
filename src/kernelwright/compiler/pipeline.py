"""One program, optimised: read, captured, cut into regions, each made faster, put together, proved, timed."""

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
from kernelwright.core.optimization import FallbackOperator, Optimization, RegionOutcome
from kernelwright.core.paths import require_writable
from kernelwright.core.progress import report_stage
from kernelwright.core.records import Machine, Verdict
from kernelwright.core.units import time_text
from kernelwright.diagnosis import why
from kernelwright.machines import machine as machine_here
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.sandbox import ForkServer
from kernelwright.verification.transport.runners import PRELOAD_MODULES
from kernelwright.verification.verdict import verify

NUM_PAIRS = 5


@dataclass(frozen=True)
class RegionPlan:
    """A program with the regions that could become kernels."""

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
    """Writes a file with a `ModelNew` that is proved and faster; a program that has no such gets one that says so.

    One that is rejected is kept beside it for reading, under `NAME_rejected.py`.

    Args:
        target: a problem, as `kw verify` takes it.
        out: where to write; by default beside the problem, `NAME_optimized.py`.
        train: give the kernels their gradients too.
        plan_only: stop at the regions; nothing is generated and nothing written.
    Raises:
        ProblemError: it cannot be captured. UsageError: `out` would overwrite the problem, or cannot be written.
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
    here = diagnosis.machine
    planned = plan_problem(problem, device)
    tuner = Tuner(backend_for(device), device, here, "compile" in baselines)
    tuned = tune_regions(problem, planned, device, tuner)
    gradients, backward = tune_gradients(problem, planned, tuned, device, tuner) if train else ([], [])
    source = assemble_source(problem, planned, tuned, backward, gradients, _file_header(problem, tuned, here), device)
    with tempfile.TemporaryDirectory() as folder, ForkServer(PRELOAD_MODULES) as nursery:
        draft = StagedFile(problem, target, Path(folder) / path.name, device, nursery)
        verdict, better = draft.verify_source(source), None
        kernels = winning_kernels(tuned)[1]
        if (
            verdict.accepted
            and not train
            and (better := tuner.choose_whole_program(problem, draft.load_program(), kernels))
        ):
            whole = emit_torch_file(problem, better[0], f"{problem.name}, which {better[0]} runs the fastest here.")
            judged = draft.verify_source(whole)
            if judged.accepted:
                source, verdict = whole, judged
            else:  # faster, and not right: the kernels are
                better = None
    rejected, timed = path.with_stem(f"{path.stem}_rejected"), None
    write_atomic(path if verdict.accepted else rejected, source.encode())
    if verdict.accepted:
        timed = bench(target, str(path), device=device, baselines=baselines, pairs=NUM_PAIRS, check=False, machine=here)
        if caught := [one for one in timed.verdicts if not one.accepted]:
            path.replace(rejected)
            verdict, timed = msgspec.structs.replace(verdict, accepted=False, reason=caught[0].reason), None
    path = path if verdict.accepted else rejected
    verdict = msgspec.structs.replace(verdict, candidate=str(path))
    found = summarize_optimization(problem, here, planned, [*tuned, *backward], source, verdict, better)
    notes = [*found.notes, *tuner.notes()]
    if timed and device == "cuda" and not train:
        notes.append(suggest_cuda_graph(problem, lambda: load_candidate(str(path), problem, device).program, here))
    return msgspec.structs.replace(
        found, diagnosis=diagnosis, output_file=str(path), bench=timed, notes=tuple(filter(None, notes))
    )


@dataclass(frozen=True)
class StagedFile:
    """A file that is proved where nobody looks: what a person already has stays until there is something better."""

    problem: Problem
    target: str
    path: Path
    device: str
    fork_server: ForkServer

    def verify_source(self, source: str) -> Verdict:
        """The verdict on this text, but for timed calls, which the bench judges; its kernels have to compile."""
        write_atomic(self.path, source.encode())
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "the program runs as it was", RuntimeWarning)
            self.load_program()
        return verify(
            self.target, str(self.path), device=self.device, fork_server=self.fork_server, check_timed_calls=False
        )

    def load_program(self) -> Callable[..., Any]:
        """The newest text, loaded."""
        return load_candidate(str(self.path), self.problem, self.device).program


def plan_problem(problem: Problem, device: str) -> RegionPlan:
    """The regions of a program on the inputs of seed 0."""
    report_stage("capturing the program", 120)
    args, kwargs = problem.inputs(device, 0)
    with torch.no_grad():
        captured = capture_with_training_mode(problem.program_on(device), args, kwargs)
    regions, refused = plan_regions(captured.graph)
    named = [(str(node.target), reason) for node, reason in refused.items() if op_name(node.target) != "getitem"]
    left = [FallbackOperator(operator=op, reason=reason, count=count) for (op, reason), count in Counter(named).items()]
    return RegionPlan(captured, tuple(PlannedRegion(region, tuple(nodes)) for region, nodes in regions), tuple(left))


def tune_regions(
    problem: Problem, planned: RegionPlan, device: str, tuner: Tuner
) -> list[tuple[PlannedRegion, TuningResult]]:
    """Every region with its outcome; equal ones are tried once."""
    program = problem.program_on(device)
    args, kwargs = problem.inputs(device, 0)
    values = bind_placeholders(planned.captured, program, args, kwargs)
    inputs = record_region_inputs(planned.captured, planned.regions, values)
    with torch.no_grad():
        return [
            (part, tuner.tune(part.region, build_reference(planned.captured, part), given))
            for part, given in zip(planned.regions, inputs, strict=True)
        ]


def tune_gradients(
    problem: Problem,
    planned: RegionPlan,
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
    device: str,
    tuner: Tuner,
) -> tuple[list[RegionGradient], list[tuple[PlannedRegion, TuningResult]]]:
    """The backward pass of every region that runs as a kernel, its own regions tuned like any other."""
    program, (args, kwargs) = problem.program_on(device), problem.inputs(device, 0)
    asking = find_trainable_nodes(planned.captured, program, args, kwargs)
    by_name = {node.name: node for node in planned.captured.graph.nodes}
    parts = [part for part, found in tuned if found.kernel]
    values = bind_placeholders(planned.captured, program, args, kwargs)
    found, outcomes = [], []
    for part, inputs in zip(parts, record_region_inputs(planned.captured, parts, values), strict=True):
        names = part.region.reads
        wanted = [at for at, name in enumerate(names) if by_name[name] in asking]
        if not wanted:
            continue
        reference = build_reference(planned.captured, part)
        gradient = build_gradient(reference, names, inputs, wanted)
        regions, _ = plan_regions(gradient.captured.graph, f"{part.region.name}_backward")
        inner = [PlannedRegion(region, tuple(nodes)) for region, nodes in regions]
        given = gradient.example_inputs(inputs, reference(*inputs))
        tried = [
            (one, tuner.tune(one.region, build_reference(gradient.captured, one), these))
            for one, these in zip(inner, record_region_inputs(gradient.captured, inner, given), strict=True)
        ]
        outcomes += tried
        found.append(RegionGradient(part.region, gradient, tuple(one for one, by in tried if by.kernel)))
    return found, outcomes


def winning_kernels(
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
) -> tuple[list[PlannedRegion], list[RegionKernel]]:
    """The regions that run as kernels, with the kernel of each."""
    won = [(part, found.kernel) for part, found in tuned if found.kernel]
    return [part for part, _ in won], [kernel for _, kernel in won]


def assemble_source(
    problem: Problem,
    planned: RegionPlan,
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
    backward: Sequence[tuple[PlannedRegion, TuningResult]],
    gradients: Sequence[RegionGradient],
    about: str,
    device: str,
) -> str:
    """The file, with the kernels that won."""
    parts, kernels = winning_kernels(tuned)
    kernels = [*kernels, *winning_kernels(backward)[1]]
    program, (args, kwargs) = problem.program_on(device), problem.inputs(device, 0)
    trained = find_trainable_nodes(planned.captured, program, args, kwargs) if gradients else set()
    return assemble(problem, planned.captured, parts, kernels, about, device, gradients, trained)


def summarize_optimization(
    problem: Problem,
    machine: Machine,
    planned: RegionPlan,
    tuned: Sequence[tuple[PlannedRegion, TuningResult]],
    source: str,
    verdict: Verdict,
    torch_fallback: tuple[str, str] | None = None,
) -> Optimization:
    """
    Args:
        torch_fallback: torch's own way that the whole program takes instead of its kernels, and why.
    """
    whole, reason = torch_fallback or ("", "")
    notes = [f"the file leaves all of it to {whole}: {reason}"] if whole else []
    if planned.captured.training and not whole and any(found.kernel for _, found in tuned):
        modes = {"train" if mode else "eval" for mode in planned.captured.training}
        notes.append(
            f"its kernels run with its modules in {' and '.join(sorted(modes))} mode as here, else it runs as it was"
        )
    return Optimization(
        problem=problem.name,
        machine=machine,
        diagnosis=None,
        regions=tuple(found.outcome for _, found in tuned),
        fallbacks=planned.fallbacks,
        output_file="",
        source=source,
        verdict=verdict,
        bench=None,
        whole_program_winner=whole,
        notes=tuple(notes),
    )


def _file_header(problem: Problem, tuned: Sequence[tuple[PlannedRegion, TuningResult]], machine: Machine) -> str:
    before = sum(found.outcome.before_us for _, found in tuned)
    after = sum(found.outcome.after_us for _, found in tuned)
    return (
        f"{problem.name} with kernels written by Kernelwright for {machine.name}.\n\n"
        f"Its regions took {time_text(before)} and take {time_text(after)}. "
        f"ModelNew takes the place of the program above it; nothing here needs Kernelwright."
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
