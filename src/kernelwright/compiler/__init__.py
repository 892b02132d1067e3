"""Compiler of PyTorch programs: capture, partition into regions, generate and tune kernels, write one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernelwright.core.optimization import Optimization

__all__ = ["optimize", "optimize_file"]


def optimize(model: Any, *args: Any, budget_s: float | None = None, **kwargs: Any) -> torch.nn.Module:
    """Compile a program with generated kernels for inputs like these; other inputs run the original program.

    Args:
        model: an nn.Module, whose parameters the result shares, or a function of tensors.
        args: example inputs; kernels are generated and verified for their shapes, dtypes and device.
        budget_s: seconds for everything; by default 60 on a GPU, 90 on a CPU.
        kwargs: example inputs that are passed by keyword.
    Returns:
        A module with the model's parameters under their names; its attribute `optimization` is the record. Results may
        be tensors, numbers, and tuples, lists, dicts and dataclasses of these; a model that returns anything else, such
        as a cache object, is left to torch, with a note in the record.
    Raises:
        ProblemError: the model has no signature, or raises.
    """
    from kernelwright.compiler.in_memory import optimize_in_memory

    return optimize_in_memory(model, args, kwargs, budget_s)


def optimize_file(*args: Any, **kwargs: Any) -> Optimization:
    """See `kernelwright.compiler.pipeline.optimize_file`."""
    from kernelwright.compiler.pipeline import optimize_file

    return optimize_file(*args, **kwargs)
