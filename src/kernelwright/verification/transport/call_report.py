"""A call's result as the worker describes it, and what that means for the bytes that were read. Nothing is believed:
what cannot be is a ForgedError."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

from kernelwright.core.errors import TamperingError
from kernelwright.measure.trace import DeviceKernel
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


class CallReport(msgspec.Struct, forbid_unknown_fields=True):
    """What the worker says of a call that is over.

    Attributes:
        segments: of the device's memory, in which `state_descriptors` lie.
        is_stream_ordered: whether what came after the call found its outputs (`own_clock`).
        kernels: that ran on the device, where that was asked for.
    """

    structure: str
    leaves: dict[str, LeafDescriptor]
    state_descriptors: dict[str, LeafDescriptor]
    segments: list[Segment]
    is_stream_ordered: bool
    kernels: list[DeviceKernel] = []


def parse_untrusted(message: Any, cls: type[T]) -> T:
    try:
        return msgspec.convert(message, cls)
    except msgspec.ValidationError as fault:
        raise TamperingError(f"what the process says of a call cannot be: {fault}") from fault


def decode_leaf_or_error(path: str, leaf: LeafDescriptor, read: dict[Extent, Tensor]) -> Any:
    """The value as it was when the call was over; the error, for one that cannot be what it is said to be."""
    if leaf.extent and leaf.extent[1] and leaf.extent not in read:
        return TamperingError(f"output{path} is said to lie where it did not when the call was over")
    try:
        return decode_leaf(leaf, read)
    except TamperingError as fault:
        return fault


def decode_leaf(leaf: LeafDescriptor, read: dict[Extent, Tensor]) -> Any:
    """A leaf as `ObservedCall` holds it."""
    if leaf.sent is not None:
        return unpack(leaf.sent, "cpu")[0]
    if not leaf.dtype:
        return leaf.type or leaf.plain
    value = view_as_tensor(read.get(leaf.extent or (0, 0), NO_BYTES), leaf)
    value = value.conj_physical() if leaf.conjugated else value
    return value.neg() if leaf.negated else value


def view_as_tensor(whole: Tensor, leaf: LeafDescriptor) -> Tensor:
    """The tensor that lies in these bytes, as described."""
    try:
        dtype = getattr(torch, leaf.dtype)
        if not math.prod(leaf.shape):
            return torch.empty(leaf.shape, dtype=dtype, device=whole.device)
        return whole.view(dtype).as_strided(leaf.shape, leaf.strides)
    except (AttributeError, RuntimeError, TypeError, ValueError) as fault:
        raise TamperingError(f"an output is not what it is said to be: {fault}") from fault
