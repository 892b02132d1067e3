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
from kernelwright.compiler.pipeline import optimize_session, summarize_optimization
from kernelwright.compiler.selection import ProgramSelector, Variant, clone_with_class, names_in_memory
from kernelwright.compiler.session import OptimizationSession, RegionTuner
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import Optimization
from kernelwright.core.pytree import tensor_leaves
from kernelwright.core.verdict import Verdict
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory
from kernelwright.problems import Problem
from kernelwright.problems.signature import get_signature
from kernelwright.problems.supported import require_supported
from kernelwright.verification import verify
from kernelwright.verification.outcome import tf32_as_set

WITHOUT_TORCH_COMPILE = partial(ProgramSelector, use_torch_compile=False)


def optimize_in_memory(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """See `kernelwright.optimize`."""
    if get_signature(model) is None:
        name = getattr(model, "__name__", type(model).__name__)
        raise ProblemError(f"{name} has no inspectable signature", next=f"wrap it: lambda x: {name}(x)")
    device = "cuda" if any(tensor.is_cuda for tensor in tensor_leaves((args, kwargs))) else "cpu"
    problem = Problem.from_callable(model, *args, **kwargs)
    require_supported(problem, (list(args), kwargs))
    machine = refresh_memory(machine_here(device))
    return optimize_problem(problem, Tuner(backend_for(device), device, machine, use_torch_compile=False))


def optimize_problem(
    problem: Problem,
    tuner: RegionTuner,
    num_input_sets: int | None = None,
    make_selector: Callable[[OptimizationSession], ProgramSelector] = WITHOUT_TORCH_COMPILE,
) -> torch.nn.Module:
    """Build a module with generated kernels and verify it; the original program if verification fails.

    Args:
        num_input_sets: how many input sets verify it; None is the default of `kw verify`.
        make_selector: makes what times the variants of the whole program.
    """
    session = OptimizationSession(problem, tuner, Budget(math.inf))
    selector = make_selector(session)
    with problem.restore_buffers():
        needs_grad = problem.needs_grad(session.inputs)
        variants, rounds = optimize_session(session, selector, train=needs_grad)
        variant, source, optimized, verdict = next(
            one for one in _verified(session, variants, num_input_sets) if one[3].accepted or one[0] is variants[-1]
        )
    record = summarize_optimization(session, source, verdict, variant, rounds)
    result = optimized if verdict.accepted else clone_with_class(session.program, _wrap_function(session.program))
    return _attach_record(result, record)


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
