"""The FP64 run: a program's own steps, with every narrow value, cast and precision that it asks for made FP64.

What a program takes from the precision it believes to compute in, such as the smallest epsilon that is not lost, stays
that of its own precision: with FP64's it would be another program. Nothing here is changed for other threads: torch's
default dtype stays as it is, and what depends on it is widened where it is called.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

NARROW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_WIDENING_METHODS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
_RMS_NORMS = (functional.rms_norm, torch.rms_norm)
# Of `rms_norm(input, shape, weight, eps)`.
_RMS_NORM_EPS_INDEX = 3
_FACTORIES = frozenset((
    torch.zeros, torch.ones, torch.empty, torch.eye, torch.linspace, torch.logspace, torch.rand, torch.randn,
    torch.normal, torch.bartlett_window, torch.blackman_window, torch.hamming_window, torch.hann_window,
    torch.kaiser_window,
))  # fmt: skip
"""What gives tensors of torch's default dtype where none is asked for."""
_FLOAT_FACTORIES = frozenset((torch.full, torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.arange))
"""The same where a number that they are given is a float."""
_dtype_of = torch.Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]


class FP64Mode(TorchFunctionMode):
    """Every narrow floating tensor, dtype argument and cast becomes FP64, so that explicit FP32 steps do not round.

    Closures and constants are widened where they are used. In-place operations keep their target.

    Args:
        native_dtype: the precision that the program believes to compute in, which is what it sees as a tensor's dtype.
    """

    def __init__(self, native_dtype: torch.dtype) -> None:
        super().__init__()
        self._native_dtype = native_dtype
        # For 16-bit types, too, `rms_norm` takes FP32's.
        self._epsilon = torch.finfo(torch.float64 if native_dtype == torch.float64 else torch.float32).eps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _dtype_of:
            dtype = func(*args)
            return self._native_dtype if dtype == torch.float64 else dtype
        if func is torch.Tensor.view and any(isinstance(arg, torch.dtype) for arg in args):
            raise TypeError("reads the bits of its values, which have no FP64 counterpart")
        if func in _WIDENING_METHODS:
            func = torch.Tensor.double
        target = args[:1] if _in_place(func) else ()
        rest = args[len(target) :]
        rest, kwargs = pytree.tree_map(widen, (tuple(rest), kwargs or {}))
        if func in _RMS_NORMS and len(args) <= _RMS_NORM_EPS_INDEX and kwargs.get("eps") is None:
            kwargs["eps"] = self._epsilon
        if _uses_default_dtype(func, args) and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float64
        if not target and _is_integer_only((rest, kwargs)):
            return _call_integer_op(func, rest, kwargs)
        return func(*target, *rest, **kwargs)


def native_precision(values: list[Tensor]) -> torch.dtype:
    """The widest floating precision among a program's inputs and state: what its intermediate results have."""
    floating = [value.dtype for value in values if value.dtype.is_floating_point]
    return max(floating, key=lambda dtype: dtype.itemsize, default=torch.get_default_dtype())


def widen(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(torch.float64) if value.dtype in NARROW_DTYPES else value
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW_DTYPES else value


def to_widest(value: Tensor) -> Tensor:
    """A tensor's values in the widest precision of their kind, which every operation takes."""
    if value.is_complex():
        return value.detach().to(torch.complex128)
    return value.detach().double() if value.dtype.is_floating_point else value.detach()


def _in_place(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _uses_default_dtype(func: Any, args: Any) -> bool:
    if func in _FLOAT_FACTORIES:
        return any(isinstance(leaf, float) for leaf in pytree.tree_leaves(args))
    return func in _FACTORIES and not (func is torch.normal and isinstance(args[0], Tensor))


def _is_integer_only(given: Any) -> bool:
    """Whether there are tensors, and all of them are whole numbers or truths."""
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)]
    return bool(tensors) and not any(tensor.dtype.is_floating_point or tensor.is_complex() for tensor in tensors)


def _call_integer_op(func: Any, args: Any, kwargs: Any) -> Any:
    """A quotient or a root of whole numbers is of torch's default dtype; here of FP64 from the start where possible."""
    result = func(*args, **kwargs)
    if not any(isinstance(leaf, Tensor) and leaf.dtype in NARROW_DTYPES for leaf in pytree.tree_leaves(result)):
        return result
    try:
        return func(*pytree.tree_map(_integer_to_fp64, args), **pytree.tree_map(_integer_to_fp64, kwargs))
    except (RuntimeError, TypeError):  # one that takes whole numbers alone
        return pytree.tree_map(widen, result)


def _integer_to_fp64(value: Any) -> Any:
    whole = isinstance(value, Tensor) and value.dtype != torch.bool and not value.dtype.is_floating_point
    return value.double() if whole else value
