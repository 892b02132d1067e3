"""The worker's description of a result, and the tensors it stands for. Untrusted: invalid descriptions raise
TamperingError."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

from kernelwright.core.errors import CandidateError, KernelwrightError, LimitError, TamperingError
from kernelwright.measure.trace import DeviceKernel
from kernelwright.sandbox.exceptions import TaskError, format_error, is_out_of_memory
from kernelwright.verification.attacks.aliased_output import TensorMemory
from kernelwright.verification.transport.control_block import Extent
from kernelwright.verification.transport.device_memory import Segment
from kernelwright.verification.transport.tensor_codec import unpack

T = TypeVar("T")
NO_BYTES = torch.empty(0, dtype=torch.uint8)


class LeafDescriptor(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A leaf of a result as the worker describes it."""

    dtype: str = ""
    shape: list[int] = []
    strides: list[int] = []
    extent: tuple[int, int] | None = None
    device: str = ""
    plain: bool | int | float | str | None = None
    type: str = ""
    sent: dict[str, Any] | None = None
    negated: bool = False
    conjugated: bool = False

    @property
    def memory(self) -> TensorMemory | None:
        """Where its elements are; None if it is not a tensor in memory, or the description is invalid."""
        dtype = getattr(torch, self.dtype, None) if self.extent else None
        if not isinstance(dtype, torch.dtype) or len(self.shape) != len(self.strides):
            return None
        address = (self.extent or (0, 0))[0]
        lazy = self.negated or self.conjugated
        return TensorMemory(address, tuple(self.shape), tuple(self.strides), dtype.itemsize, lazy)


class CallReport(msgspec.Struct, forbid_unknown_fields=True):
    """The worker's report of a finished call.

    Attributes:
        segments: device allocations that contain the tensors of `state_descriptors`.
        is_stream_ordered: whether work after the call read its outputs in their final state (`self_timer`).
        kernels: kernels that ran on the device, if traced.
    """

    structure: str
    leaves: dict[str, LeafDescriptor]
    state_descriptors: dict[str, LeafDescriptor]
    segments: list[Segment]
    is_stream_ordered: bool
    kernels: list[DeviceKernel] = []


def parse_untrusted(message: Any, cls: type[T]) -> T:
    """Convert a message of the candidate's process to `cls`.

    Raises:
        TamperingError: the message has another structure.
    """
    try:
        return msgspec.convert(message, cls)
    except msgspec.ValidationError as error:
        raise TamperingError(f"invalid report from the candidate's process: {error}") from error


@contextlib.contextmanager
def candidate_at_fault(*kept: type[KernelwrightError]) -> Iterator[None]:
    """Within this block a process that holds a candidate is called and its reports are read: whatever is raised is the
    candidate's fault.

    Args:
        kept: errors that are raised as they are, in addition to those of a candidate.
    Raises:
        TaskError: the process reported an error that a candidate cannot have.
        TamperingError: its report cannot be read.
    """
    try:
        yield
    except (LimitError, TaskError, CandidateError, *kept):
        raise
    except KernelwrightError as error:
        raise TaskError(f"{type(error).__name__}: {error.message}", where=error.where) from error
    except Exception as error:
        if is_out_of_memory(error):  # of this process
            raise
        raise TamperingError(f"the report of its process cannot be read: {format_error(error)}") from error


def decode_leaf_or_error(path: str, leaf: LeafDescriptor, read: dict[Extent, Tensor]) -> Any:
    """The value at the end of the call, or the error where the descriptor is invalid."""
    if leaf.extent and leaf.extent[1] and leaf.extent not in read:
        return TamperingError(f"the reported address of output{path} differs from the one at the end of the call")
    try:
        return decode_leaf(leaf, read)
    except TamperingError as error:
        return error


def decode_leaf(leaf: LeafDescriptor, read: dict[Extent, Tensor]) -> Any:
    """The value of a leaf, as in `ObservedCall.leaves`."""
    if leaf.sent is not None:
        try:
            return unpack(leaf.sent, "cpu")[0]
        except Exception as error:  # any bytes may have been sent
            raise TamperingError(f"an output was sent in a form that cannot be read: {error}") from error
    if not leaf.dtype:
        return leaf.type or leaf.plain
    value = view_as_tensor(read.get(leaf.extent or (0, 0), NO_BYTES), leaf)
    value = value.conj_physical() if leaf.conjugated else value
    return value.neg() if leaf.negated else value


def view_as_tensor(whole: Tensor, leaf: LeafDescriptor) -> Tensor:
    """The described tensor as a view of these bytes.

    Raises:
        TamperingError: the descriptor is invalid, or does not fit the bytes.
    """
    try:
        dtype = getattr(torch, leaf.dtype)
        if not math.prod(leaf.shape):
            return torch.empty(leaf.shape, dtype=dtype, device=whole.device)
        return whole.view(dtype).as_strided(leaf.shape, leaf.strides)
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise TamperingError(f"the descriptor of an output is invalid: {error}") from error
