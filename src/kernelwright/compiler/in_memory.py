"""A live model with kernels of its own, in memory: it shares the model's parameters and can be trained and moved."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

from kernelwright.compiler.backends import generator_for
from kernelwright.compiler.kernel_source import load
from kernelwright.compiler.output_file import assemble_whole
from kernelwright.compiler.pipeline import assembled, gradients_of, outcome_of, plan_of, tune_all, winners
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import Optimization
from kernelwright.core.pytree import tensors
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory
from kernelwright.problems import Problem
from kernelwright.problems.signature import signature_of
from kernelwright.verification import verify


def optimized(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """See `kernelwright.optimize`."""
    if signature_of(model) is None:
        name = getattr(model, "__name__", type(model).__name__)
        raise ProblemError(f"{name} says nothing of its arguments", next=f"wrap it: lambda x: {name}(x)")
    device = "cuda" if any(tensor.is_cuda for tensor in tensors((args, kwargs))) else "cpu"
    problem = Problem.from_callable(model, *args, **kwargs)
    here = refresh_memory(machine_here(device))
    return with_kernels(problem, Tuner(generator_for(device), device, here, compile=False))


def with_kernels(problem: Problem, tuner: Tuner, sets: int | None = None) -> torch.nn.Module:
    """The problem's program with kernels of its own, verified; as it was where that fails."""
    device, program = tuner.device, problem.on(tuner.device)
    with problem.untouched():
        planned = plan_of(problem, device)
        tuned = tune_all(problem, planned, device, tuner)
        trained = problem.records_gradients(problem.inputs(device, 0))
        gradients, backward = gradients_of(problem, planned, tuned, device, tuner) if trained else ([], [])
        in_memory = dataclasses.replace(problem, source=None)
        source = assembled(in_memory, planned, tuned, backward, gradients, "Kernels made in memory.", device)
        changed = _with_forward(program, load(source, {"Model": _base(program)}).ModelNew)
        verdict = verify(problem, changed, device=device, sets=sets)
        kernels = winners(tuned)[1]
        better = tuner.whole(problem, changed, kernels) if verdict.accepted and not trained else None
        if better:
            text = assemble_whole(in_memory, better[0], "Chosen in memory.")
            whole = _with_forward(program, load(text, {"Model": _base(program)}).ModelNew)
            judged = verify(problem, whole, device=device, sets=sets)
            if judged.accepted:
                source, changed, verdict = text, whole, judged
            else:  # faster, and not right: the kernels are
                better = None
    found = outcome_of(problem, tuner.machine, planned, [*tuned, *backward], source, verdict, better)
    return _labelled(changed if verdict.accepted else _with_forward(program, _unchanged(program)), found)


def _base(model: Any) -> Any:
    return type(model) if isinstance(model, torch.nn.Module) else model


def _with_forward(model: Any, cls: type[torch.nn.Module]) -> torch.nn.Module:
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


def _unchanged(model: Any) -> type[torch.nn.Module]:
    if isinstance(model, torch.nn.Module):
        return type(model)
    return type("Unchanged", (torch.nn.Module,), {"forward": staticmethod(model), "__call__": staticmethod(model)})


def _labelled(module: torch.nn.Module, found: Optimization) -> torch.nn.Module:
    object.__setattr__(module, "optimization", found)
    return module
