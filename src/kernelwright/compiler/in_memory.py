"""Optimise a model in memory: the result shares its parameters, and can be trained and moved between devices."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.kernel_source import load
from kernelwright.compiler.output_file import emit_torch_file
from kernelwright.compiler.pipeline import (
    assemble_source,
    plan_problem,
    summarize_optimization,
    tune_gradients,
    tune_regions,
    winning_kernels,
)
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import Optimization
from kernelwright.core.pytree import tensor_leaves
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory
from kernelwright.problems import Problem
from kernelwright.problems.signature import get_signature
from kernelwright.verification import verify


def optimize_in_memory(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """See `kernelwright.optimize`."""
    if get_signature(model) is None:
        name = getattr(model, "__name__", type(model).__name__)
        raise ProblemError(f"{name} has no inspectable signature", next=f"wrap it: lambda x: {name}(x)")
    device = "cuda" if any(tensor.is_cuda for tensor in tensor_leaves((args, kwargs))) else "cpu"
    problem = Problem.from_callable(model, *args, **kwargs)
    machine = refresh_memory(machine_here(device))
    return optimize_problem(problem, Tuner(backend_for(device), device, machine, use_torch_compile=False))


def optimize_problem(problem: Problem, tuner: Tuner, num_input_sets: int | None = None) -> torch.nn.Module:
    """Build a module with generated kernels and verify it; the original program if verification fails.

    Args:
        num_input_sets: how many input sets verify it; None is the default of `kw verify`.
    """
    device, program = tuner.device, problem.program_on(tuner.device)
    with problem.restore_buffers():
        planned = plan_problem(problem, device)
        tuned = tune_regions(problem, planned, device, tuner)
        needs_grad = problem.needs_grad(problem.inputs(device, 0))
        gradients, backward = tune_gradients(problem, planned, tuned, device, tuner) if needs_grad else ([], [])
        in_memory = dataclasses.replace(problem, source=None)
        source = assemble_source(in_memory, planned, tuned, backward, gradients, "Kernels generated in memory.", device)
        optimized = _clone_with_class(program, load(source, {"Model": _base(program)}).ModelNew)
        verdict, torch_fallback = verify(problem, optimized, device=device, sets=num_input_sets), None
        if verdict.accepted and not needs_grad:
            torch_fallback = tuner.choose_whole_program(problem, optimized, winning_kernels(tuned)[1])
        if torch_fallback:
            text = emit_torch_file(in_memory, torch_fallback[0], "Variant selected in memory.")
            variant = _clone_with_class(program, load(text, {"Model": _base(program)}).ModelNew)
            torch_verdict = verify(problem, variant, device=device, sets=num_input_sets)
            if torch_verdict.accepted:
                source, optimized, verdict = text, variant, torch_verdict
            else:  # faster but wrong: keep the verified kernels
                torch_fallback = None
    record = summarize_optimization(
        problem, tuner.machine, planned, [*tuned, *backward], source, verdict, torch_fallback
    )
    result = optimized if verdict.accepted else _clone_with_class(program, _wrap_function(program))
    return _attach_record(result, record)


def _base(model: Any) -> Any:
    return type(model) if isinstance(model, torch.nn.Module) else model


def _clone_with_class(model: Any, cls: type[torch.nn.Module]) -> torch.nn.Module:
    """A shallow copy of the model with another class.

    It shares the model's dicts of parameters, buffers and modules, and so sees later changes of them; hooks are copied.
    """
    if not isinstance(model, torch.nn.Module):
        return cls()
    clone = copy.copy(model)
    for name, value in vars(model).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            vars(clone)[name] = value.copy()
    clone.__class__ = cls
    return clone


def _wrap_function(model: Any) -> type[torch.nn.Module]:
    if isinstance(model, torch.nn.Module):
        return type(model)
    return type("Unchanged", (torch.nn.Module,), {"forward": staticmethod(model), "__call__": staticmethod(model)})


def _attach_record(module: torch.nn.Module, record: Optimization) -> torch.nn.Module:
    object.__setattr__(module, "optimization", record)
    return module
