"""Optimise one program: plan and tune its regions, time variants of the whole program, write and verify the file."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch

from kernelwright.benchmark.bench import summarize_rounds
from kernelwright.benchmark.variants import require_baselines
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.budget import Budget, OutOfTime, time_limit
from kernelwright.compiler.compile_ahead import CompileAhead
from kernelwright.compiler.compile_pool import CompilePool
from kernelwright.compiler.inductor_cache import inductor_cache
from kernelwright.compiler.kernel_source import load
from kernelwright.compiler.module_summary import summarize_modules
from kernelwright.compiler.planning import RegionPlan, merge_fallbacks, merge_rewrites, plan_problem
from kernelwright.compiler.rewrites.registry import ALL_REWRITES, OFF_BY_DEFAULT
from kernelwright.compiler.selection import EAGER, IN_GRAPH, ProgramSelector, Variant, explain_choice, names_in_memory
from kernelwright.compiler.session import OptimizationSession, untuned
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.bench import Bench
from kernelwright.core.cache import write_atomic
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.errors import ProblemError, UsageError
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import (
    DEFAULT_BUDGET_S,
    OWN_KERNELS,
    TORCH,
    TORCH_COMPILE,
    BudgetUse,
    Optimization,
    RegionOutcome,
)
from kernelwright.core.paths import require_writable
from kernelwright.core.verdict import Verdict
from kernelwright.diagnosis.run_once import run_once
from kernelwright.diagnosis.why import why_with_work
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory
from kernelwright.measure.paired import InterleavedTimings
from kernelwright.problems import Problem, load_problem
from kernelwright.problems.supported import require_supported
from kernelwright.sandbox import ForkServer
from kernelwright.verification.outcome import (
    WIDENED,
    Precision,
    operand_precision,
    tf32_as_set,
    widened_precision,
)
from kernelwright.verification.transport.runners import PRELOAD_MODULES
from kernelwright.verification.verdict import verify
from kernelwright.work.counting import ProgramWork

MAX_MEMORY_SHARE, MAX_DIAGNOSIS_SHARE = 0.05, 0.2
"""Shares of the budget for the bandwidth of the memory (2 to 4 s on an idle machine, up to 36 s on a busy one) and for
the diagnosis."""
MIN_VERIFY_S = 5.0
"""Time that a file gets for its verification at least, even after the budget."""
ORIGINAL_TIMES = 3
"""The original program gets so many times as long: only one that does not end for some inputs needs more."""
MORE_TIME = "use smaller inputs, or a larger --budget"
MIN_REPLAN_S = 8.0
"""Time left that is worth kernels without rewrites after those with them were rejected."""
DIFFERS_FROM_ITSELF = (
    "the original program differs from itself: it may depend on what is neither an argument nor a parameter or buffer"
)
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
            return _plan_only(problem, device, disabled)
    preload = (*PRELOAD_MODULES, *COMPILER_MODULES[device])
    compiled = inductor_cache(target)
    with (
        widened_precision(precision),
        compiled.in_use(),
        _compile_ahead(target, device, baselines) as ahead,
        ForkServer(preload, compiled.folder) as fork_server,
        tempfile.TemporaryDirectory() as folder,
    ):
        problem = load_problem(target)
        with CompilePool(torch.cuda.get_device_capability() if device == "cuda" else None) as pool:
            machine = _measured_machine(device, budget)
            tuner = Tuner(backend_for(device), device, machine, "compile" in baselines, pool=pool)
            session = OptimizationSession(problem, tuner, budget)
            _check_program(session)
            diagnosis, work = None, None
            with session.isolated("there is no diagnosis", MAX_DIAGNOSIS_SHARE * budget.total_s):
                diagnosis, work = why_with_work(problem, device, machine)
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
    session.tune_regions()
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


@dataclass(frozen=True)
class StagedFile:
    """A file verified in a temporary folder, so that an existing output file is replaced only by a verified one."""

    session: OptimizationSession
    target: str
    path: Path
    fork_server: ForkServer

    def first_accepted(self, variants: Sequence[Variant]) -> tuple[Variant, str, Verdict] | None:
        """Verify variants until one is accepted.

        Returns:
            It, its source and its verdict; those of the original program if all are rejected; None where kernels of a
            rewritten program are rejected and there is time for those of the program as it was written.
        Raises:
            ProblemError: the original program cannot be verified.
        """
        for variant in itertools.takewhile(lambda one: one != EAGER, variants):  # what is slower is of no use
            verified: tuple[str, Verdict] | None = None
            with self.session.isolated(f"{variant.name} is not used", self._limit_s):
                verified = self._verified(variant)
            if verified and verified[1].accepted:
                return variant, *verified
            self.session.note_rejection(variant.name, verified[1].reason if verified else None)
            if verified and self._may_lack_rewrites(variant):
                return None
        return EAGER, *self._verified_original()

    @property
    def _limit_s(self) -> float:
        """What a verification may take: the rest of the budget, and no less than it needs."""
        budget = self.session.budget
        return max(budget.until_end_s, budget.reserved_s, MIN_VERIFY_S)

    def _may_lack_rewrites(self, variant: Variant) -> bool:
        """Whether a rejected variant runs a rewritten program, and kernels without rewrites are worth the time left."""
        session = self.session
        is_rewritten = any(plan.captured.is_rewritten for plan in session.plans) and not session.trained
        if variant.engine != OWN_KERNELS or not is_rewritten:
            return False
        return session.budget.allows(MIN_REPLAN_S, "kernels without rewrites")

    def _verified_original(self) -> tuple[str, Verdict]:
        """Verify the original program: its faults are those of the problem."""
        total_s = self.session.budget.total_s
        try:
            with time_limit(ORIGINAL_TIMES * self._limit_s):  # of no use is a run that ends without a file
                source, verdict = self._verified(EAGER)
        except OutOfTime as error:
            message = f"the original program is not verified within the budget of {total_s:.0f} s"
            raise ProblemError(message, next=MORE_TIME) from error
        if not verdict.accepted:
            self.session.faults.append(DIFFERS_FROM_ITSELF)
        return source, verdict

    def _verified(self, variant: Variant) -> tuple[str, Verdict]:
        self.session.free_memory()
        source = variant.source(self.session.problem, file_header(self.session, variant))
        if variant.engine == OWN_KERNELS and self.session.device == "cpu":
            self._compile_kernels(variant)
        return source, self._verify(source)

    def _compile_kernels(self, variant: Variant) -> None:
        """Compile the kernels without the original program: to define its custom operators again in this process would
        invalidate those that the program calls.

        Raises:
            RuntimeWarning: the kernels do not compile.
        """
        problem = self.session.problem
        load(variant.source(replace(problem, source=None), ""), names_in_memory(problem, self.session.program))

    def _verify(self, source: str) -> Verdict:
        """Verify a source text.

        Timed calls are not checked: nothing here wants to deceive its clock.
        """
        write_atomic(self.path, source.encode())
        problem, device = self.session.problem, self.session.device
        with tf32_as_set():
            return verify(problem, str(self.path), device=device, fork_server=self.fork_server, check_timed_calls=False)


def bench_of(
    session: OptimizationSession,
    rounds: InterleavedTimings,
    chosen: Variant,
    verdict: Verdict,
    work: ProgramWork | None,
) -> Bench:
    """The timings of the chosen variant and of the baselines as a benchmark."""
    names = [(chosen.name, "candidate"), (TORCH, "eager"), (TORCH_COMPILE, TORCH_COMPILE)]
    problem, machine = session.problem, session.tuner.machine
    return summarize_rounds(problem, machine, session.device, rounds, names, [verdict], work)


def file_header(session: OptimizationSession, variant: Variant) -> str:
    """The docstring of the output file."""
    name, machine = session.problem.name, session.tuner.machine.name
    if not variant.layers:
        return f"{name}, unchanged: nothing was faster on {machine}."
    what = variant.name.replace(OWN_KERNELS, "kernels generated by Kernelwright")
    return (
        f"{name} with {what}, for {machine}.\n\n"
        f"ModelNew replaces the original program; this file does not need Kernelwright.{_precision_line()}"
    )


def _precision_line() -> str:
    """What the file states about a precision below FP32 that the user permits."""
    precision = operand_precision()
    return f"\nOperands of products may be rounded to {precision.upper()}." if precision in WIDENED else ""


def summarize_optimization(
    session: OptimizationSession,
    source: str,
    verdict: Verdict | None,
    chosen: Variant,
    rounds: InterleavedTimings | None,
    diagnosis: Diagnosis | None = None,
) -> Optimization:
    """Build the record of an optimised program, without its file and benchmark."""
    notes, plan, plans = [], session.plan, session.plans
    runs_kernels = chosen.engine == OWN_KERNELS
    if not runs_kernels and rounds and chosen.name in rounds.timings and len(rounds.timings) > 1:
        reason = explain_choice(chosen.name, rounds, session.rejected)
        notes.append(f"the file runs the whole program with {chosen.name}: {reason}")
    if plan and plan.captured.training and runs_kernels:
        modes = {"train" if mode else "eval" for mode in plan.captured.training}
        notes.append(
            f"the kernels run with the modules in {' and '.join(sorted(modes))} mode, as at capture; otherwise the "
            f"original program runs"
        )
    if runs_kernels and chosen.options:
        notes.append(f"the file runs {chosen.name}")
    if session.budget.left_out:
        notes.append(
            f"not tried within the budget of {session.budget.total_s:.0f} s: {', '.join(session.budget.left_out)}"
        )
    outcomes = session.outcomes()
    unused = "" if runs_kernels else _why_unused(session, chosen)
    return Optimization(
        problem=session.problem.name,
        machine=session.tuner.machine,
        diagnosis=diagnosis,
        regions=outcomes if runs_kernels else _mark_unused(outcomes, unused),
        fallbacks=merge_fallbacks(plans),
        output_file="",
        source=source,
        verdict=verdict,
        bench=None,
        engine=chosen.engine,
        options=chosen.options,
        num_kernels=sum(outcome.has_kernel for outcome in outcomes) if runs_kernels else 0,
        modules=summarize_modules(plans, outcomes, diagnosis, runs_kernels=runs_kernels),
        budget=_budget_use(session.budget),
        notes=(*notes, *session.faults, *session.tuner.notes()),
        rewrites=tuple(msgspec.structs.replace(one, not_used=unused) for one in merge_rewrites(plans)),
    )


def _mark_unused(outcomes: Sequence[RegionOutcome], reason: str) -> tuple[RegionOutcome, ...]:
    """The outcomes, with the reason why the file does not run the kernels that won."""
    return tuple(msgspec.structs.replace(one, not_used=reason) if one.has_kernel else one for one in outcomes)


def _why_unused(session: OptimizationSession, chosen: Variant) -> str:
    """Why the file runs the chosen variant of torch and not the regions' kernels."""
    if any(map(_is_kernel_variant, session.budget.left_out)):
        return "there was no time to try the whole program with them"
    failed = (fault.partition(" is not used: ")[0] for fault in session.faults)
    if any(_is_kernel_variant(name) or name.startswith("the kernels are not used") for name in failed):
        return "the whole program failed with them, see the notes"
    return f"the whole program is faster with {chosen.name}"


def _is_kernel_variant(name: str) -> bool:
    """Whether a variant of the whole program runs the kernels; not in a CUDA graph, where they ran without one too."""
    return name.split(", ")[0] == OWN_KERNELS and IN_GRAPH not in name


def _budget_use(budget: Budget) -> BudgetUse | None:
    """What was spent so far; None without a limit."""
    if math.isinf(budget.total_s):
        return None
    return BudgetUse(total_s=budget.total_s, spent_s=round(budget.spent_s, 2), left_out=tuple(budget.left_out))


def _plan_only(problem: Problem, device: str, disabled: Set[str]) -> Optimization:
    """The record of a plan.

    Raises:
        ProblemError: the program cannot be captured, neither as a whole nor in graphs.
    """
    machine, notes = machine_here(device), []
    try:
        plans: tuple[RegionPlan, ...] = (plan_problem(problem, device, disabled),)
    except ProblemError:
        session = OptimizationSession(problem, Tuner(backend_for(device), device, machine), Budget(math.inf))
        session.make_plan(disabled=disabled)
        plans, notes = session.plans, session.faults
        if not plans:
            raise
    parts = [(plan, part) for plan in plans for part in plan.regions if part.region.name not in plan.same_as]
    return Optimization(
        problem=problem.name,
        machine=machine,
        diagnosis=None,
        regions=tuple(
            msgspec.structs.replace(
                untuned(part, "").outcome, summary="", winner="", num_occurrences=plan.count(part.region.name)
            )
            for plan, part in parts
        ),
        fallbacks=merge_fallbacks(plans),
        output_file="",
        source="",
        verdict=None,
        bench=None,
        notes=tuple(notes),
        rewrites=merge_rewrites(plans),
    )


def _default_path(target: str) -> str:
    path = Path(target.partition(":")[0])
    name = target.partition(":")[2] or path.stem
    return str(path.with_name(f"{name}_optimized.py"))
