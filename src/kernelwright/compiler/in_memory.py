"""A live model with kernels of its own, in memory: it shares the model's parameters and can be trained and moved."""

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
        raise ProblemError(f"{name} says nothing of its arguments", next=f"wrap it: lambda x: {name}(x)")
    device = "cuda" if any(tensor.is_cuda for tensor in tensor_leaves((args, kwargs))) else "cpu"
    problem = Problem.from_callable(model, *args, **kwargs)
    here = refresh_memory(machine_here(device))
    return optimize_problem(problem, Tuner(backend_for(device), device, here, use_torch_compile=False))


def optimize_problem(problem: Problem, tuner: Tuner, num_input_sets: int | None = None) -> torch.nn.Module:
    """The problem's program with kernels of its own, verified; as it was where that fails."""
    device, program = tuner.device, problem.program_on(tuner.device)
    with problem.restore_buffers():
        planned = plan_problem(problem, device)
        tuned = tune_regions(problem, planned, device, tuner)
        trained = problem.needs_grad(problem.inputs(device, 0))
        gradients, backward = tune_gradients(problem, planned, tuned, device, tuner) if trained else ([], [])
        in_memory = dataclasses.replace(problem, source=None)
        source = assemble_source(in_memory, planned, tuned, backward, gradients, "Kernels made in memory.", device)
        changed = _clone_with_class(program, load(source, {"Model": _base(program)}).ModelNew)
        verdict = verify(problem, changed, device=device, sets=num_input_sets)
        kernels = winning_kernels(tuned)[1]
        better = tuner.choose_whole_program(problem, changed, kernels) if verdict.accepted and not trained else None
        if better:
            text = emit_torch_file(in_memory, better[0], "Chosen in memory.")
            whole = _clone_with_class(program, load(text, {"Model": _base(program)}).ModelNew)
            judged = verify(problem, whole, device=device, sets=num_input_sets)
            if judged.accepted:
                source, changed, verdict = text, whole, judged
            else:  # faster, and not right: the kernels are
                better = None
    found = summarize_optimization(problem, tuner.machine, planned, [*tuned, *backward], source, verdict, better)
    return _attach_record(changed if verdict.accepted else _clone_with_class(program, _wrap_function(program)), found)


def _base(model: Any) -> Any:
    return type(model) if isinstance(model, torch.nn.Module) else model


def _clone_with_class(model: Any, cls: type[torch.nn.Module]) -> torch.nn.Module:
    """A twin of the model, of another class: its parameters, buffers and modules are the model's, also those that are
    replaced or added later; its hooks are its own."""
    if not isinstance(model, torch.nn.Module):
        return cls()
    twin = copy.copy(model)
    for name, value in vars(model).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            vars(twin)[name] = value.copy()
    twin.__class__ = cls
    return twin


def _wrap_function(model: Any) -> type[torch.nn.Module]:
    if isinstance(model, torch.nn.Module):
        return type(model)
    return type("Unchanged", (torch.nn.Module,), {"forward": staticmethod(model), "__call__": staticmethod(model)})


def _attach_record(module: torch.nn.Module, found: Optimization) -> torch.nn.Module:
    object.__setattr__(module, "optimization", found)
    return module
