"""The precision that torch permits in cuDNN: operands of convolutions and recurrences rounded to TF32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_CUDNN_OPERATORS = frozenset(
    ("convolution", "cudnn_convolution", "cudnn_convolution_transpose", "_cudnn_rnn", "convolution_overrideable")
)
_DROPPED_BITS = 13
"""TF32 has 10 bits of a significand, FP32 has 23."""


class Tf32Operands(TorchDispatchMode):
    """Rounds the operands of cuDNN's operators to TF32, so that a run has the error of one on tensor cores.

    Whether cuDNN uses them for an operator depends on layouts and heuristics; a program has to accept both.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Round, then run."""
        if func._schema.name.split("::")[1] in _CUDNN_OPERATORS:
            operands = pytree.tree_map_only(Tensor, round_to_tf32, list(args[:2]))
            args = (*operands, *args[2:])
        return func(*args, **(kwargs or {}))


def round_to_tf32(value: Tensor) -> Tensor:
    """An FP32 tensor rounded to nearest in TF32; other tensors unchanged."""
    if value.dtype is not torch.float32:
        return value
    bits = value.detach().contiguous().view(torch.int32)
    rounded = ((bits + (1 << (_DROPPED_BITS - 1))) >> _DROPPED_BITS) << _DROPPED_BITS
    return torch.where(value.isfinite(), rounded.view(torch.float32), value)


def permitted_for(values: list[Tensor]) -> bool:
    """Whether torch lets cuDNN use TF32 for these tensors."""
    cudnn: Any = torch.backends.cudnn
    return cudnn.allow_tf32 and any(value.is_cuda for value in values)
