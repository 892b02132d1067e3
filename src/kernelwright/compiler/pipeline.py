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
from kernelwright.compiler.backends import generator_for
from kernelwright.compiler.capture.backward import gradient_of, trainable
from kernelwright.compiler.capture.capture import Captured, capture_with_mode
from kernelwright.compiler.cuda_graph import graph_offer
from kernelwright.compiler.differentiable import Differentiable
from kernelwright.compiler.forward_codegen import Part
from kernelwright.compiler.kernel_source import Kernel
from kernelwright.compiler.output_file import assemble, assemble_whole
from kernelwright.compiler.reference import inputs_of, placeholder_values, reference_of
from kernelwright.compiler.regions.operators import packet
from kernelwright.compiler.regions.partition import plan
from kernelwright.compiler.tuning import Tuned, Tuner
from kernelwright.core.cache import write_atomic
from kernelwright.core.errors import UsageError
from kernelwright.core.optimization import Left, Optimization, RegionOutcome
from kernelwright.core.paths import require_place
from kernelwright.core.progress import stage
from kernelwright.core.records import Machine, Verdict
from kernelwright.core.units import time_text
from kernelwright.diagnosis import why
from kernelwright.machines import machine as machine_here
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.sandbox import Nursery
from kernelwright.verification.transport.runners import PRELOAD
from kernelwright.verification.verdict import verify

PAIRS = 5


@dataclass(frozen=True)
class Planned:
    """A program with the regions that could become kernels."""

    captured: Captured
    parts: tuple[Part, ...]
    left: tuple[Left, ...]


def optimize_file(
    target: str,
    out: str | None = None,
    *,
    device: str = "cpu",
    baselines: Sequence[str] = ("eager", "compile"),
    train: bool = False,
    only_plan: bool = False,
) -> Optimization:
    """Writes a file with a `ModelNew` that is proved and faster; a program that has no such gets one that says so.

    One that is rejected is kept beside it for reading, under `NAME_rejected.py`.

    Args:
        target: a problem, as `kw verify` takes it.
        out: where to write; by default beside the problem, `NAME_optimized.py`.
        train: give the kernels their gradients too.
        only_plan: stop at the regions; nothing is generated and nothing written.
    Raises:
        ProblemError: it cannot be captured. UsageError: `out` would overwrite the problem, or cannot be written.
    """
    require_baselines(baselines)
    path = Path(out or _default_name(target))
    if path.exists() and path.resolve() == Path(target.partition(":")[0]).resolve():
        raise UsageError(f"{path} is the problem itself", next="--out another_name.py")
    require_place(path, "--out")
    problem = load_problem(target)
    if only_plan:
        return _planned_only(problem, machine_here(device), plan_of(problem, device))
    diagnosis = why(problem, device=device)
    here = diagnosis.machine
    planned = plan_of(problem, device)
    tuner = Tuner(generator_for(device), device, here, "compile" in baselines)
    tuned = tune_all(problem, planned, device, tuner)
    gradients, backward = gradients_of(problem, planned, tuned, device, tuner) if train else ([], [])
    source = assembled(problem, planned, tuned, backward, gradients, _about(problem, tuned, here), device)
    with tempfile.TemporaryDirectory() as folder, Nursery(PRELOAD) as nursery:
        draft = Draft(problem, target, Path(folder) / path.name, device, nursery)
        verdict, better = draft.proved(source), None
        kernels = winners(tuned)[1]
        if verdict.accepted and not train and (better := tuner.whole(problem, draft.program(), kernels)):
            whole = assemble_whole(problem, better[0], f"{problem.name}, which {better[0]} runs the fastest here.")
            judged = draft.proved(whole)
            if judged.accepted:
                source, verdict = whole, judged
            else:  # faster, and not right: the kernels are
                better = None
    rejected, timed = path.with_stem(f"{path.stem}_rejected"), None
    write_atomic(path if verdict.accepted else rejected, source.encode())
    if verdict.accepted:
        timed = bench(target, str(path), device=device, baselines=baselines, pairs=PAIRS, check=False, machine=here)
        if caught := [one for one in timed.verdicts if not one.accepted]:
            path.replace(rejected)
            verdict, timed = msgspec.structs.replace(verdict, accepted=False, reason=caught[0].reason), None
    path = path if verdict.accepted else rejected
    verdict = msgspec.structs.replace(verdict, candidate=str(path))
    found = outcome_of(problem, here, planned, [*tuned, *backward], source, verdict, better)
    notes = [*found.notes, *tuner.notes()]
    if timed and device == "cuda" and not train:
        notes.append(graph_offer(problem, lambda: load_candidate(str(path), problem, device).program, here))
    return msgspec.structs.replace(
        found, diagnosis=diagnosis, file=str(path), bench=timed, notes=tuple(filter(None, notes))
    )


@dataclass(frozen=True)
class Draft:
    """A file that is proved where nobody looks: what a person already has stays until there is something better."""

    problem: Problem
    target: str
    path: Path
    device: str
    nursery: Nursery

    def proved(self, source: str) -> Verdict:
        """The verdict on this text, but for timed calls, which the bench judges; its kernels have to compile."""
        write_atomic(self.path, source.encode())
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "the program runs as it was", RuntimeWarning)
            self.program()
        return verify(self.target, str(self.path), device=self.device, nursery=self.nursery, timed=False)

    def program(self) -> Callable[..., Any]:
        """The newest text, loaded."""
        return load_candidate(str(self.path), self.problem, self.device).program


def plan_of(problem: Problem, device: str) -> Planned:
    """The regions of a program on the inputs of seed 0."""
    stage("capturing the program", 120)
    args, kwargs = problem.inputs(device, 0)
    with torch.no_grad():
        captured = capture_with_mode(problem.on(device), args, kwargs)
    regions, refused = plan(captured.graph)
    named = [(str(node.target), reason) for node, reason in refused.items() if packet(node.target) != "getitem"]
    left = [Left(operator=op, reason=reason, count=count) for (op, reason), count in Counter(named).items()]
    return Planned(captured, tuple(Part(region, tuple(nodes)) for region, nodes in regions), tuple(left))


def tune_all(problem: Problem, planned: Planned, device: str, tuner: Tuner) -> list[tuple[Part, Tuned]]:
    """Every region with its outcome; equal ones are tried once."""
    program = problem.on(device)
    args, kwargs = problem.inputs(device, 0)
    values = placeholder_values(planned.captured, program, args, kwargs)
    inputs = inputs_of(planned.captured, planned.parts, values)
    with torch.no_grad():
        return [
            (part, tuner.tune(part.region, reference_of(planned.captured, part), given))
            for part, given in zip(planned.parts, inputs, strict=True)
        ]


def gradients_of(
    problem: Problem, planned: Planned, tuned: Sequence[tuple[Part, Tuned]], device: str, tuner: Tuner
) -> tuple[list[Differentiable], list[tuple[Part, Tuned]]]:
    """The backward pass of every region that runs as a kernel, its own regions tuned like any other."""
    program, (args, kwargs) = problem.on(device), problem.inputs(device, 0)
    asking = trainable(planned.captured, program, args, kwargs)
    by_name = {node.name: node for node in planned.captured.graph.nodes}
    parts = [part for part, found in tuned if found.kernel]
    values = placeholder_values(planned.captured, program, args, kwargs)
    found, outcomes = [], []
    for part, inputs in zip(parts, inputs_of(planned.captured, parts, values), strict=True):
        names = part.region.reads
        wanted = [at for at, name in enumerate(names) if by_name[name] in asking]
        if not wanted:
            continue
        reference = reference_of(planned.captured, part)
        gradient = gradient_of(reference, names, inputs, wanted)
        regions, _ = plan(gradient.captured.graph, f"{part.region.name}_backward")
        inner = [Part(region, tuple(nodes)) for region, nodes in regions]
        given = gradient.values(inputs, reference(*inputs))
        tried = [
            (one, tuner.tune(one.region, reference_of(gradient.captured, one), these))
            for one, these in zip(inner, inputs_of(gradient.captured, inner, given), strict=True)
        ]
        outcomes += tried
        found.append(Differentiable(part.region, gradient, tuple(one for one, by in tried if by.kernel)))
    return found, outcomes


def winners(tuned: Sequence[tuple[Part, Tuned]]) -> tuple[list[Part], list[Kernel]]:
    """The regions that run as kernels, with the kernel of each."""
    won = [(part, found.kernel) for part, found in tuned if found.kernel]
    return [part for part, _ in won], [kernel for _, kernel in won]


def assembled(
    problem: Problem,
    planned: Planned,
    tuned: Sequence[tuple[Part, Tuned]],
    backward: Sequence[tuple[Part, Tuned]],
    gradients: Sequence[Differentiable],
    about: str,
    device: str,
) -> str:
    """The file, with the kernels that won."""
    parts, kernels = winners(tuned)
    kernels = [*kernels, *winners(backward)[1]]
    program, (args, kwargs) = problem.on(device), problem.inputs(device, 0)
    trained = trainable(planned.captured, program, args, kwargs) if gradients else set()
    return assemble(problem, planned.captured, parts, kernels, about, device, gradients, trained)


def outcome_of(
    problem: Problem,
    machine: Machine,
    planned: Planned,
    tuned: Sequence[tuple[Part, Tuned]],
    source: str,
    verdict: Verdict,
    better: tuple[str, str] | None = None,
) -> Optimization:
    """
    Args:
        better: torch's own way that the whole program takes instead of its kernels, and why.
    """
    whole, reason = better or ("", "")
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
        left=planned.left,
        file="",
        source=source,
        verdict=verdict,
        bench=None,
        whole=whole,
        notes=tuple(notes),
    )


def _about(problem: Problem, tuned: Sequence[tuple[Part, Tuned]], machine: Machine) -> str:
    before = sum(found.outcome.before_us for _, found in tuned)
    after = sum(found.outcome.after_us for _, found in tuned)
    return (
        f"{problem.name} with kernels written by Kernelwright for {machine.name}.\n\n"
        f"Its regions took {time_text(before)} and take {time_text(after)}. "
        f"ModelNew takes the place of the program above it; nothing here needs Kernelwright."
    )


def _planned_only(problem: Problem, machine: Machine, planned: Planned) -> Optimization:
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
            why="",
        )
        for part in planned.parts
    )
    return Optimization(
        problem=problem.name,
        machine=machine,
        diagnosis=None,
        regions=regions,
        left=planned.left,
        file="",
        source="",
        verdict=None,
        bench=None,
    )


def _default_name(target: str) -> str:
    path = Path(target.partition(":")[0])
    name = target.partition(":")[2] or path.stem
    return str(path.with_name(f"{name}_optimized.py"))
