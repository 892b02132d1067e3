"""Optimise one program: plan and tune its regions, time variants of the whole program, write and verify the file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence, Set
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec
import torch

from kernelwright.benchmark.variants import require_baselines
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.budget import Budget, OutOfTime, time_limit
from kernelwright.compiler.compile_ahead import CompileAhead
from kernelwright.compiler.compile_pool import CompilePool
from kernelwright.compiler.optimization_record import bench_of, summarize_optimization, summarize_plan
from kernelwright.compiler.program_cache import program_cache, using_program_cache
from kernelwright.compiler.program_variant import EAGER, Variant
from kernelwright.compiler.rewrites.registry import ALL_REWRITES, OFF_BY_DEFAULT
from kernelwright.compiler.selection import ProgramSelector
from kernelwright.compiler.session import OptimizationSession
from kernelwright.compiler.staged_file import MORE_TIME, StagedFile
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.cache import write_atomic
from kernelwright.core.errors import ProblemError, UsageError
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import (
    DEFAULT_BUDGET_S,
    OWN_KERNELS,
    Optimization,
)
from kernelwright.core.paths import require_writable
from kernelwright.diagnosis.run_once import run_once
from kernelwright.diagnosis.why import TIMING_BUDGET_S, why_with_work
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory, require_device
from kernelwright.measure.clock import wall_s
from kernelwright.measure.paired import InterleavedTimings
from kernelwright.problems import load_problem
from kernelwright.problems.supported import require_supported
from kernelwright.sandbox import ForkServer
from kernelwright.verification.outcome import (
    Precision,
    widened_precision,
)
from kernelwright.verification.transport.runners import PRELOAD_MODULES

MAX_MEMORY_SHARE, MAX_DIAGNOSIS_SHARE, TIMING_SHARE = 0.05, 0.2, 0.01
"""Shares of the budget for the bandwidth of the memory (2 to 4 s on an idle machine, up to 36 s on a busy one), for the
diagnosis, and for the timing of the program in it."""
COMPILER_MODULES = {"cpu": (), "cuda": ("triton", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")}
"""What a process that verifies a file imports first; seconds, which pass while the file is made."""


def optimize_file(
    target: str,
    out: str | None = None,
    *,
    device: str = "cpu",
    baselines: Sequence[str] = ("eager", "compile"),
    train: bool = False,
    plan_only: bool = False,
    budget_s: float | None = None,
    precision: Precision | None = None,
    disabled: Set[str] = OFF_BY_DEFAULT,
) -> Optimization:
    """Write a file with a verified, faster `ModelNew`; if nothing is faster, `ModelNew` is the original program.

    A rejected file is kept for inspection as `NAME_rejected.py`.

    Args:
        target: a problem, as for `kw verify`.
        out: output path; by default `NAME_optimized.py` next to the problem.
        train: generate backward kernels too.
        plan_only: stop after partitioning; nothing is generated or written.
        budget_s: seconds for everything, compilation included; by default 60 on a GPU, 90 on a CPU.
        precision: what the operands of FP32 products may be rounded to; None keeps the precision of the program.
        disabled: names of rewrites that are not applied; see `rewrites.registry.select_disabled`.
    Raises:
        ProblemError: with `plan_only`, the program cannot be captured.
        UsageError: `out` would overwrite the problem, or cannot be written.
    """
    budget = Budget(budget_s or DEFAULT_BUDGET_S[device])
    require_baselines(baselines)
    path = Path(out or _default_path(target))
    if path.exists() and path.resolve() == Path(target.partition(":")[0]).resolve():
        raise UsageError(f"{path} is the problem itself", next="--out another_name.py")
    require_writable(path, "--out")
    if plan_only:
        problem = load_problem(target)
        with widened_precision(precision):
            return summarize_plan(problem, device, disabled)
    require_device(device)
    preload = (*PRELOAD_MODULES, *COMPILER_MODULES[device])
    compiled = program_cache(target)
    with (
        widened_precision(precision),
        using_program_cache(compiled),
        _compile_ahead(target, device, baselines) as ahead,
        ForkServer(preload, compiled) as fork_server,
        tempfile.TemporaryDirectory() as folder,
    ):
        start_s = wall_s()
        problem = load_problem(target)
        building_s = wall_s() - start_s
        with CompilePool(torch.cuda.get_device_capability() if device == "cuda" else None) as pool:
            machine = _measured_machine(device, budget)
            tuner = Tuner(backend_for(device), device, machine, "compile" in baselines, pool=pool)
            session = OptimizationSession(problem, tuner, budget, building_s=building_s)
            _check_program(session)
            diagnosis, work = None, None
            with session.isolated("there is no diagnosis", MAX_DIAGNOSIS_SHARE * budget.total_s):
                timing_s = min(TIMING_SHARE * budget.total_s, TIMING_BUDGET_S)
                diagnosis, work = why_with_work(problem, device, machine, timing_s)
            selector = ProgramSelector(session, use_torch_compile="compile" in baselines, ahead=ahead)
            variants, rounds = optimize_session(session, selector, train=train, disabled=disabled)
            selector.release()
            staged = StagedFile(session, target, Path(folder) / path.name, fork_server)
            while (accepted := staged.first_accepted(variants)) is None:
                variants, rounds = optimize_unrewritten(session, selector)
                selector.release()
            chosen, source, verdict = accepted
    rejected = path.with_stem(f"{path.stem}_rejected")
    path = path if verdict.accepted else rejected
    write_atomic(path, source.encode())
    verdict = msgspec.structs.replace(verdict, candidate=str(path))
    timed = rounds and verdict.accepted and chosen.name in rounds.timings
    bench = bench_of(session, rounds, chosen, verdict, work) if rounds and timed else None
    record = summarize_optimization(session, source, verdict, chosen, rounds, diagnosis)
    return msgspec.structs.replace(record, output_file=str(path), bench=bench, precision=precision or "")


def _compile_ahead(target: str, device: str, baselines: Sequence[str]) -> CompileAhead | nullcontext[None]:
    """On a GPU, where the processor has time for it, a process that compiles the whole program."""
    return CompileAhead(target, device) if device == "cuda" and "compile" in baselines else nullcontext()


def _measured_machine(device: str, budget: Budget) -> Machine:
    """The machine, with the current bandwidth of its memory if that can be measured in its share of the time."""
    machine, limit_s = machine_here(device, accept_disturbed=True), MAX_MEMORY_SHARE * budget.total_s
    with suppress(OutOfTime), time_limit(limit_s):
        return refresh_memory(machine, limit_s)
    return machine


def _check_program(session: OptimizationSession) -> None:
    """Run the program once.

    Raises:
        ProblemError: it is not supported, raises, or takes longer than the budget.
    """
    problem, total_s = session.problem, session.budget.total_s
    require_supported(problem, session.inputs)
    try:
        grad_enabled = torch.set_grad_enabled(problem.needs_grad(session.inputs))
        with problem.restore_buffers(), grad_enabled, time_limit(session.budget.until_end_s):
            run_once(session.program, session.inputs)
    except OutOfTime as error:
        message = f"one call of the program takes longer than the budget of {total_s:.0f} s"
        raise ProblemError(message, next=MORE_TIME) from error


def optimize_session(
    session: OptimizationSession, selector: ProgramSelector, *, train: bool, disabled: Set[str] = OFF_BY_DEFAULT
) -> tuple[list[Variant], InterleavedTimings | None]:
    """Run a session to its end.

    Returns:
        The variants of the whole program, best first, and their timings; trained programs run the kernels untimed.
    """
    if train:
        session.make_plan(train=True, disabled=disabled)
        session.tune_regions()
        with session.isolated("the kernels are not trained"):
            session.tune_gradients()
        with session.isolated("the kernels are not used"):
            if layer := session.kernel_layer():
                return [Variant(OWN_KERNELS, layer), EAGER], None
        return [EAGER], None
    if session.device == "cuda":  # kernels of convolutions pack the channels last themselves, and compile meanwhile
        session.make_plan(disabled=disabled)
        session.compile_ahead()
    selector.time_baselines()
    if session.device == "cpu":
        session.channels_last = selector.options["channels_last"]
        session.make_plan(disabled=disabled)
    session.tune_regions(selector.later_s)
    selector.time_kernels()
    if session.device == "cuda":
        selector.time_options()
    return selector.select()


def optimize_unrewritten(
    session: OptimizationSession, selector: ProgramSelector
) -> tuple[list[Variant], InterleavedTimings | None]:
    """Plan and tune the program as it was written, after kernels of a rewritten one were rejected."""
    selector.drop_kernels()
    session.drop_plan()
    session.make_plan(disabled=ALL_REWRITES)
    if session.device == "cuda":
        session.compile_ahead()
    session.tune_regions()
    selector.time_kernels()
    return selector.select()


def _default_path(target: str) -> str:
    path = Path(target.partition(":")[0])
    name = target.partition(":")[2] or path.stem
    return str(path.with_name(f"{name}_optimized.py"))
