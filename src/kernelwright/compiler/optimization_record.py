"""The record of an optimisation: what was tried, what the file runs, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

import msgspec

from kernelwright.benchmark.bench import summarize_rounds
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.budget import Budget
from kernelwright.compiler.module_summary import summarize_modules
from kernelwright.compiler.planning import RegionPlan, merge_fallbacks, merge_rewrites, plan_problem
from kernelwright.compiler.program_variant import IN_GRAPH, Variant
from kernelwright.compiler.session import OptimizationSession, untuned
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.bench import Bench
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import OWN_KERNELS, TORCH, TORCH_COMPILE, BudgetUse, Optimization, RegionOutcome
from kernelwright.core.verdict import Verdict
from kernelwright.machines import machine as machine_here
from kernelwright.measure.paired import InterleavedTimings
from kernelwright.problems import Problem
from kernelwright.work.counting import ProgramWork


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


def summarize_plan(problem: Problem, device: str, disabled: Set[str]) -> Optimization:
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


def explain_choice(chosen: str, rounds: InterleavedTimings, rejected: Set[str] = frozenset()) -> str:
    """State how much faster the chosen variant is than the next that was not rejected."""
    left_out = {chosen, *rejected}
    others = {name: timing.time_us for name, timing in rounds.timings.items() if name not in left_out}
    if not others:
        return "no other variant passed its verification in time" if len(rounds.timings) > 1 else "no other was timed"
    second = min(others, key=lambda name: others[name])
    return f"{others[second] / rounds.timings[chosen].time_us:.2f}x faster than the next, {second}"
