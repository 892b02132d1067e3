"""Compiler of PyTorch programs: capture, partition into regions, generate and tune kernels, write one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernelwright.core.optimization import Optimization

__all__ = ["optimize", "optimize_file"]


def optimize(model: Any, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Compile a program with generated kernels for inputs like these; other inputs run the original program.

    Args:
        model: an nn.Module, whose parameters the result shares, or a function of tensors.
        args: example inputs; kernels are generated and verified for their shapes, dtypes and device.
    Returns:
        A module with the model's parameters under their names; its attribute `optimization` is the record.
    Raises:
        ProblemError: the model has no signature, raises, or returns what cannot be compared.
    """
    from kernelwright.compiler.in_memory import optimize_in_memory

    return optimize_in_memory(model, args, kwargs)


def optimize_file(*args: Any, **kwargs: Any) -> Optimization:
    """See `kernelwright.compiler.pipeline.optimize_file`."""
    from kernelwright.compiler.pipeline import optimize_file

    return optimize_file(*args, **kwargs)
