"""Operands rounded to less than FP32, as torch permits in cuDNN or as the user does for all products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.verification.outcome import AS_TORCH_IS_SET, operand_precision

_FIRST_TWO, _LAST_TWO = slice(0, 2), slice(1, 3)
CUDNN_OPERATORS: Mapping[str, slice] = dict.fromkeys(
    ("convolution", "cudnn_convolution", "cudnn_convolution_transpose", "_cudnn_rnn", "convolution_overrideable"),
    _FIRST_TWO,
)
PRODUCTS: Mapping[str, slice] = {
    **CUDNN_OPERATORS,
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), _FIRST_TWO),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm"), _LAST_TWO),
}
"""By operator, its arguments that are operands."""
_DROPPED_BITS = {"tf32": 13, "bf16": 16}
"""FP32 has 23 bits of a significand, TF32 10, BF16 7."""


class RoundedOperands(TorchDispatchMode):
    """Rounds the operands of some operators, so that a run has the error of one on tensor cores.

    Whether cuDNN uses TF32 for an operator depends on layouts and heuristics; a program has to accept both.
    """

    def __init__(self, operators: Mapping[str, slice], rounding: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._operators, self._rounding = operators, rounding

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Round, then run."""
        if operands := self._operators.get(func._schema.name.split("::")[1]):
            rounded = list(args)
            rounded[operands] = pytree.tree_map_only(Tensor, self._rounding, rounded[operands])
            args = tuple(rounded)
        return func(*args, **(kwargs or {}))


def permitted_rounding(values: list[Tensor]) -> RoundedOperands | None:
    """The mode that rounds as the user or torch permits for a program with these tensors; None if neither does."""
    precision, cudnn = operand_precision(), torch.backends.cudnn
    if precision == AS_TORCH_IS_SET:
        by_torch = cudnn.allow_tf32 and any(value.is_cuda for value in values)  # type: ignore[attr-defined]
        return RoundedOperands(CUDNN_OPERATORS, round_to_tf32) if by_torch else None
    if precision in _DROPPED_BITS:
        return RoundedOperands(PRODUCTS, lambda value: _round(value, _DROPPED_BITS[precision]))
    return None


def round_to_tf32(value: Tensor) -> Tensor:
    """An FP32 tensor rounded to nearest in TF32; other tensors unchanged."""
    return _round(value, _DROPPED_BITS["tf32"])


def _round(value: Tensor, dropped_bits: int) -> Tensor:
    if value.dtype is not torch.float32:
        return value
    bits = value.detach().contiguous().view(torch.int32)
    rounded = ((bits + (1 << (dropped_bits - 1))) >> dropped_bits) << dropped_bits
    return torch.where(value.isfinite(), rounded.view(torch.float32), value)
