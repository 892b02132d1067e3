"""From a slow program to faster code that its owner keeps: capture, regions, generated kernels, one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernelwright.core.optimization import Optimization

__all__ = ["optimize", "optimize_file"]


def optimize(model: Any, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """The same program with kernels of its own, for inputs like these; anything else runs as it always did.

    Args:
        model: an nn.Module, whose parameters the result shares, or a function of tensors.
        args: example inputs; kernels are made and proved for their shapes, dtypes and device.
    Returns:
        A module with the model's parameters under their names; `optimization` on it says what was done.
    Raises:
        ProblemError: the model cannot be captured.
    """
    from kernelwright.compiler.in_memory import optimize_in_memory

    return optimize_in_memory(model, args, kwargs)


def optimize_file(*args: Any, **kwargs: Any) -> Optimization:
    """See `kernelwright.compiler.pipeline.optimize_file`."""
    from kernelwright.compiler.pipeline import optimize_file

    return optimize_file(*args, **kwargs)
