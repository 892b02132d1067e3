"""The FP64 run: the program's own steps, with every narrow tensor, cast and requested precision replaced by FP64.

Values that a program derives from its precision, such as the smallest significant epsilon, keep the native precision:
with FP64's it would be another program. Other threads are not affected: torch's default dtype is unchanged, and
functions that depend on it are widened at the call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

WIDE_DTYPES = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_WIDENING_METHODS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
_RMS_NORMS = (functional.rms_norm, torch.rms_norm)
# Of `rms_norm(input, shape, weight, eps)`.
_RMS_NORM_EPS_INDEX = 3
_FACTORIES = frozenset((
    torch.zeros, torch.ones, torch.empty, torch.eye, torch.linspace, torch.logspace, torch.rand, torch.randn,
    torch.normal, torch.bartlett_window, torch.blackman_window, torch.hamming_window, torch.hann_window,
    torch.kaiser_window,
))  # fmt: skip
"""Functions that return tensors of torch's default dtype unless one is requested."""
_FLOAT_FACTORIES = frozenset((torch.full, torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.arange))
"""The same for functions called with a float."""
TRANSPOSED_CONVOLUTIONS = frozenset((torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d))
CONVOLUTIONS = frozenset((torch.conv1d, torch.conv2d, torch.conv3d)) | TRANSPOSED_CONVOLUTIONS
_dtype_of = torch.Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]


class FP64Mode(TorchFunctionMode):
    """Replaces every narrow floating tensor, dtype argument and cast by FP64, so that explicit FP32 steps do not
    round.

    Closures and constants are widened where they are used. In-place operations keep their target.

    Args:
        native_dtype: the precision that the program was written for, reported as the dtype of its FP64 tensors.
    Attributes:
        has_convolution: the program has called a convolution.
    """

    def __init__(self, native_dtype: torch.dtype) -> None:
        super().__init__()
        self._native_dtype = native_dtype
        self.has_convolution = False
        # `rms_norm` uses FP32's epsilon for 16-bit types too.
        self._epsilon = torch.finfo(torch.float64 if native_dtype == torch.float64 else torch.float32).eps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _dtype_of:
            dtype = func(*args)
            return self._native_dtype if dtype == torch.float64 else dtype
        if func is torch.Tensor.view and any(isinstance(arg, torch.dtype) for arg in args):
            raise TypeError("reads the bits of its values, which have no FP64 counterpart")
        self.has_convolution |= func in CONVOLUTIONS
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
    """The widest floating precision among a program's inputs and state: the precision of its intermediate results."""
    floating = [value.dtype for value in values if value.dtype.is_floating_point]
    return max(floating, key=lambda dtype: dtype.itemsize, default=torch.get_default_dtype())


def widen(value: Any) -> Any:
    """A narrow floating or complex tensor or dtype as FP64; any other value unchanged."""
    if isinstance(value, Tensor):
        return value.to(WIDE_DTYPES[value.dtype]) if value.dtype in WIDE_DTYPES else value
    return WIDE_DTYPES.get(value, value) if isinstance(value, torch.dtype) else value


def to_widest(value: Tensor) -> Tensor:
    """A tensor in the widest precision of its kind: complex128, float64, or unchanged."""
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


def _is_integer_only(arguments: Any) -> bool:
    """Whether there are tensors and all of them are integers or booleans."""
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
    return bool(tensors) and not any(tensor.dtype.is_floating_point or tensor.is_complex() for tensor in tensors)


def _call_integer_op(func: Any, args: Any, kwargs: Any) -> Any:
    """Call an operator on integers; a quotient or root, which has torch's default dtype, is computed in FP64 where
    possible."""
    result = func(*args, **kwargs)
    if not any(isinstance(leaf, Tensor) and leaf.dtype in WIDE_DTYPES for leaf in pytree.tree_leaves(result)):
        return result
    try:
        return func(*pytree.tree_map(_integer_to_fp64, args), **pytree.tree_map(_integer_to_fp64, kwargs))
    except (RuntimeError, TypeError):  # an operator that only takes integers
        return pytree.tree_map(widen, result)


def _integer_to_fp64(value: Any) -> Any:
    is_integer = isinstance(value, Tensor) and value.dtype != torch.bool and not value.dtype.is_floating_point
    return value.double() if is_integer else value
