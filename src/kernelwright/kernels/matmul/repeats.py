"""Repeats launches: what a call with the same layouts can reuse."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch._C._dynamo.guards import _empty_strided_cuda  # pyright: ignore
from torch._prims_common import make_contiguous_strides_for

from kernelwright.kernels.matmul.configs import TMA_ALIGNMENT
from kernelwright.kernels.matmul.launch import GemmLaunch

MAX_REMEMBERED = 4096


@dataclass(frozen=True)
class Repeat:
    """A launch whose operands are read where they are: no copies, no terms, no scales."""

    launch: GemmLaunch
    device: int
    swapped: bool

    def __call__(
        self, a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, alpha: float, beta: float, out: Tensor
    ) -> None:
        first, second = (b, a) if self.swapped else (a, b)
        self.launch(
            torch._C._cuda_getCurrentRawStream(self.device),
            (first.data_ptr(), second.data_ptr()),
            out.data_ptr(),
            (0 if bias is None else bias.data_ptr(), 0 if residual is None else residual.data_ptr(), 0, 0, 0),
            alpha,
            beta,
        )


class Remembered(NamedTuple):
    """How to repeat a call, and the layout of a new result."""

    launch: AnyRepeat
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, launch: AnyRepeat, out: Tensor) -> Remembered:
        """For results of the shape of `out`, contiguous."""
        return cls(launch, tuple(out.shape), make_contiguous_strides_for(out.shape))

    def new_result(self, dtype: torch.dtype) -> Tensor:
        """Allocate on the current device, as compiled programs do: in a quarter of the time of `torch.empty`."""
        return _empty_strided_cuda(self.shape, self.strides, dtype)


class AnyRepeat(Protocol):
    """Launches for the operands of a call."""

    def __call__(
        self, a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, alpha: float, beta: float, out: Tensor
    ) -> None: ...


def call_key(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    out_dtype: torch.dtype,
    precision: str,
    out: Tensor | None = None,
) -> tuple[Any, ...]:
    """All that checks and a launch without scales and statistics depend on other than addresses and factors.

    Args:
        out: None if it is newly allocated.
    """
    layout = None
    if out is not None and not (out.is_contiguous() and out.data_ptr() % TMA_ALIGNMENT == 0):
        layout = out.stride(), out.data_ptr() % TMA_ALIGNMENT
    return (
        a.shape, a.stride(), b.shape, b.stride(), a.dtype, b.dtype, out_dtype, layout, a.get_device(), b.get_device(),
        a.data_ptr() % TMA_ALIGNMENT, b.data_ptr() % TMA_ALIGNMENT, activation, precision,
        None if bias is None else (bias.dtype, bias.shape, bias.stride(), bias.get_device()),
        None if residual is None else (residual.dtype, residual.shape, residual.stride(), residual.get_device()),
    )  # fmt: skip


class _Thread(threading.local):
    """What a thread keeps.

    Attributes:
        launches: by their configuration and strides: they hold parameters that one thread may change.
        repeats: by `call_key`.
    """

    def __init__(self) -> None:
        self.launches: dict[Any, Any] = {}
        self.repeats: dict[Any, Remembered] = {}

    def remember(self, memory: dict[Any, Any], key: Any, value: Any) -> None:
        """Keep a value; all are dropped when there are too many."""
        if len(memory) >= MAX_REMEMBERED:
            memory.clear()
        memory[key] = value


THREAD = _Thread()
