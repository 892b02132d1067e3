"""The FP64 run: a program's own steps, with every narrow value, cast and precision that it asks for made FP64.

What a program takes from the precision it believes to compute in, such as the smallest epsilon that is not lost, stays
that of its own precision: with FP64's it would be another program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

NARROW = (torch.float32, torch.float16, torch.bfloat16)
_WIDENING_METHODS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
_RMS_NORMS = (functional.rms_norm, torch.rms_norm)
# Of `rms_norm(input, shape, weight, eps)`.
_EPSILON_PLACE = 3


class Widened(TorchFunctionMode):
    """Every narrow floating tensor, dtype argument and cast becomes FP64, so that explicit FP32 steps do not round.

    Closures and constants are widened where they are used. In-place operations keep their target.

    Args:
        epsilon: what `rms_norm` adds where it is not told.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self._epsilon = epsilon

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.view and any(isinstance(arg, torch.dtype) for arg in args):
            raise TypeError("reads the bits of its values, which have no FP64 counterpart")
        if func in _WIDENING_METHODS:
            func = torch.Tensor.double
        target = args[:1] if _in_place(func) else ()
        rest = args[len(target) :]
        rest, kwargs = pytree.tree_map(widen, (tuple(rest), kwargs or {}))
        if func in _RMS_NORMS and len(args) <= _EPSILON_PLACE and kwargs.get("eps") is None:
            kwargs["eps"] = self._epsilon
        return func(*target, *rest, **kwargs)


@contextmanager
def widened(own: torch.dtype) -> Iterator[None]:
    """Runs what is inside in FP64; `own` is the precision that the program believes to compute in."""
    default, finfo = torch.get_default_dtype(), torch.finfo

    def own_finfo(dtype: torch.dtype | None = None) -> torch.finfo:
        dtype = dtype or torch.get_default_dtype()
        return finfo(own if dtype == torch.float64 else dtype)

    # For 16-bit types, too, `rms_norm` takes FP32's.
    epsilon = finfo(torch.float64 if own == torch.float64 else torch.float32).eps
    torch.set_default_dtype(torch.float64)
    torch.finfo = own_finfo  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with Widened(epsilon):
            yield
    finally:
        torch.set_default_dtype(default)
        torch.finfo = finfo  # pyright: ignore[reportAttributeAccessIssue]


def own_precision(values: list[Tensor]) -> torch.dtype:
    """The widest floating precision among a program's inputs and state: what its intermediate results have."""
    floating = [value.dtype for value in values if value.dtype.is_floating_point]
    return max(floating, key=lambda dtype: dtype.itemsize, default=torch.get_default_dtype())


def widen(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(torch.float64) if value.dtype in NARROW else value
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def wide_value(value: Tensor) -> Tensor:
    """A tensor's values in the widest precision of their kind, which every operation takes."""
    if value.is_complex():
        return value.detach().to(torch.complex128)
    return value.detach().double() if value.dtype.is_floating_point else value.detach()


def _in_place(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
