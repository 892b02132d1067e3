"""Optimise a model in memory: the result shares its parameters, and can be trained and moved between devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.budget import Budget
from kernelwright.compiler.kernel_source import load
from kernelwright.compiler.optimization_record import summarize_optimization
from kernelwright.compiler.pipeline import optimize_session
from kernelwright.compiler.program_variant import EAGER, Variant, clone_with_class, names_in_memory
from kernelwright.compiler.result_types import find_incomparable, register_result_types
from kernelwright.compiler.selection import ProgramSelector
from kernelwright.compiler.session import OptimizationSession
from kernelwright.compiler.tuning import Tuner
from kernelwright.compiler.tuning_order import RegionTuner
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import DEFAULT_BUDGET_S, Optimization
from kernelwright.core.pytree import clone_inputs, tensor_leaves
from kernelwright.core.verdict import Verdict
from kernelwright.diagnosis.run_once import reraise_as_problem_error
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory
from kernelwright.problems import Problem
from kernelwright.problems.signature import get_signature
from kernelwright.problems.supported import require_supported
from kernelwright.verification import verify
from kernelwright.verification.outcome import tf32_as_set

WITHOUT_TORCH_COMPILE = partial(ProgramSelector, use_torch_compile=False)


def optimize_in_memory(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget_s: float | None = None
) -> torch.nn.Module:
    """See `kernelwright.optimize`."""
    if get_signature(model) is None:
        name = getattr(model, "__name__", type(model).__name__)
        raise ProblemError(f"{name} has no inspectable signature", next=f"wrap it: lambda x: {name}(x)")
    device = "cuda" if any(tensor.is_cuda for tensor in tensor_leaves((args, kwargs))) else "cpu"
    problem = Problem.from_callable(model, *args, **kwargs)
    require_supported(problem, (list(args), kwargs))
    budget = Budget(budget_s or DEFAULT_BUDGET_S[device])
    machine = refresh_memory(machine_here(device))
    tuner = Tuner(backend_for(device), device, machine, use_torch_compile=False)
    return optimize_problem(problem, tuner, budget=budget)


def optimize_problem(
    problem: Problem,
    tuner: RegionTuner,
    num_input_sets: int | None = None,
    make_selector: Callable[[OptimizationSession], ProgramSelector] = WITHOUT_TORCH_COMPILE,
    budget: Budget | None = None,
) -> torch.nn.Module:
    """Build a module with generated kernels and verify it; the original program if verification fails.

    Args:
        num_input_sets: how many input sets verify it; None is the default of `kw verify`.
        make_selector: makes what times the variants of the whole program.
        budget: of time; None is no limit.
    """
    session = OptimizationSession(problem, tuner, budget or Budget(math.inf))
    if name := _prepare_result(session):
        session.faults.append(f"the program is left to torch: its result has a {name}, which cannot be compared")
        return _unchanged(session, summarize_optimization(session, "", None, EAGER, None))
    selector = make_selector(session)
    with problem.restore_buffers():
        needs_grad = problem.needs_grad(session.inputs)
        variants, rounds = optimize_session(session, selector, train=needs_grad)
        variant, source, optimized, verdict = next(
            one for one in _verified(session, variants, num_input_sets) if one[3].accepted or one[0] is variants[-1]
        )
    record = summarize_optimization(session, source, verdict, variant, rounds)
    return _attach_record(optimized, record) if verdict.accepted else _unchanged(session, record)


def _prepare_result(session: OptimizationSession) -> str:
    """Run the program once, and let torch know the types of its result.

    Returns:
        The name of a type in the result that cannot be compared, or an empty string.
    Raises:
        ProblemError: the program raised.
    """
    args, kwargs = clone_inputs(session.inputs)
    needs_grad = session.problem.needs_grad(session.inputs)
    with session.problem.restore_buffers(), reraise_as_problem_error(), torch.set_grad_enabled(needs_grad):
        result = session.program(*args, **kwargs)
    register_result_types(result)
    return find_incomparable(result)


def _unchanged(session: OptimizationSession, record: Optimization) -> torch.nn.Module:
    """The program as it was, with a record."""
    return _attach_record(clone_with_class(session.program, _wrap_function(session.program)), record)


def _verified(
    session: OptimizationSession, variants: Sequence[Variant], num_input_sets: int | None
) -> Iterator[tuple[Variant, str, torch.nn.Module, Verdict]]:
    """Build variants, and verify each."""
    in_memory = dataclasses.replace(session.problem, source=None)
    names = names_in_memory(in_memory, session.program)
    for variant in variants:
        source = variant.source(in_memory, "Kernels generated in memory.")
        optimized = clone_with_class(session.program, load(source, names).ModelNew)
        with tf32_as_set():
            verdict = verify(session.problem, optimized, device=session.device, sets=num_input_sets)
        if not verdict.accepted:
            session.note_rejection(variant.name, verdict.reason)
        yield variant, source, optimized, verdict


def _wrap_function(model: Any) -> type[torch.nn.Module]:
    if isinstance(model, torch.nn.Module):
        return type(model)
    return type("Unchanged", (torch.nn.Module,), {"forward": staticmethod(model), "__call__": staticmethod(model)})


def _attach_record(module: torch.nn.Module, record: Optimization) -> torch.nn.Module:
    object.__setattr__(module, "optimization", record)
    return module
