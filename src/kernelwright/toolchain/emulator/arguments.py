"""Launch shapes and kernel arguments, checked against the kernel's parameters."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.core.errors import SignatureError, UsageError

if TYPE_CHECKING:
    import torch

    from kernelwright.toolchain.emulator.build import Parameter

MAX_THREADS_PER_BLOCK, MAX_SHARED_BYTES = 1024, 227 * 1024
MAX_GRID, MAX_BLOCK, MAX_CLUSTER = (2**31 - 1, 65535, 65535), (1024, 1024, 64), (16, 1, 1)
WARP, ALIGNMENT = 32, 64
OTHER, FLOAT, SIGNED, UNSIGNED, POINTER = range(5)
_FORMATS = {
    (FLOAT, 4): "f",
    (FLOAT, 8): "d",
    **{(SIGNED, 1 << i): code for i, code in enumerate("bhiq")},
    **{(UNSIGNED, 1 << i): code for i, code in enumerate("BHIQ")},
}
_KINDS = {FLOAT: "float", SIGNED: "int", UNSIGNED: "unsigned"}
Dim3 = int | Sequence[int]


@dataclass(frozen=True)
class LaunchShape:
    """Grid and block dimensions of a launch, three numbers each, its dynamic shared memory, and blocks of a cluster."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    cluster: int = 1

    @classmethod
    def from_sizes(cls, grid: Dim3, block: Dim3, shared_bytes: int, cluster: Dim3 = 1) -> LaunchShape:
        """Build a launch shape from one to three numbers each.

        Raises:
            UsageError: a size below 1 or above the limits of a GPU.
        """
        blocks, threads = _to_dim3("grid", grid, MAX_GRID), _to_dim3("block", block, MAX_BLOCK)
        if (count := threads[0] * threads[1] * threads[2]) > MAX_THREADS_PER_BLOCK:
            raise UsageError(f"a block of {threads} has {count} threads; the limit is {MAX_THREADS_PER_BLOCK}")
        if not 0 <= shared_bytes <= MAX_SHARED_BYTES:
            raise UsageError(f"{shared_bytes} bytes of dynamic shared memory; the limit is {MAX_SHARED_BYTES}")
        of_cluster = _to_dim3("cluster", cluster, MAX_CLUSTER)
        if blocks[0] % of_cluster[0] or (of_cluster[0] > 1 and count % WARP):
            raise UsageError(
                f"clusters of {of_cluster[0]} blocks with {count} threads do not divide a grid of {blocks}"
            )
        return cls(blocks, threads, shared_bytes, of_cluster[0])


def _to_dim3(what: str, size: Dim3, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    sizes = [int(size)] if not isinstance(size, Sequence) else [int(one) for one in size]
    dims = [*sizes, *[1] * (3 - len(sizes))]
    if len(dims) != 3 or not sizes or not all(1 <= dim <= limit for dim, limit in zip(dims, limits, strict=True)):
        raise UsageError(f"{what} {size!r} must be one to three numbers from 1 to {limits}")
    return dims[0], dims[1], dims[2]


@dataclass(frozen=True)
class Argument:
    """A bound argument: a tensor, or the bytes of a scalar."""

    name: str
    tensor: torch.Tensor | None
    value: bytes = b""

    def buffer(self) -> Any:
        """A ctypes buffer with the bytes of the parameter; the caller must keep it alive during the launch."""
        data = self.value if self.tensor is None else struct.pack("P", self.tensor.data_ptr())
        memory = ctypes.create_string_buffer(len(data) + ALIGNMENT)
        aligned = (ctypes.c_char * len(data)).from_buffer(memory, -ctypes.addressof(memory) % ALIGNMENT)
        aligned[:] = data
        return aligned


def bind(
    kernel: str, arguments: Sequence[Any], parameters: Sequence[Parameter], names: Sequence[str]
) -> list[Argument]:
    """Convert each argument for its parameter.

    Raises:
        SignatureError: wrong number of arguments, or one that does not fit; the message names the parameter.
    """
    if len(arguments) != len(parameters):
        raise SignatureError(f"{kernel} takes {len(parameters)} arguments ({', '.join(names)}), not {len(arguments)}")
    labels = names if len(names) == len(parameters) else [f"argument {i}" for i in range(len(parameters))]
    return [_bind_one(kernel, *row) for row in zip(arguments, parameters, labels, strict=True)]


def _bind_one(kernel: str, value: Any, parameter: Parameter, name: str) -> Argument:
    import torch

    where = f"{kernel}: {name}"
    if parameter.kind == POINTER:
        if value is None:
            return Argument(name, None, bytes(parameter.bytes))
        if not isinstance(value, torch.Tensor):
            raise SignatureError(f"{where} is a pointer and needs a tensor, not {value!r}")
        _require_fit(where, value, parameter)
        return Argument(name, value)
    if isinstance(value, torch.Tensor):
        raise SignatureError(f"{where} must be a number, not a tensor of shape {tuple(value.shape)}")
    if isinstance(value, bytes | bytearray) and len(value) == parameter.bytes:
        return Argument(name, None, bytes(value))
    return Argument(name, None, _pack(where, value, parameter))


def _require_fit(where: str, tensor: torch.Tensor, parameter: Parameter) -> None:
    if tensor.device.type != "cpu":
        raise SignatureError(f"{where} is on {tensor.device}; the emulator runs on the CPU")
    if (parameter.inner, parameter.inner_bytes) not in _FORMATS:
        return  # a pointer to a structure such as float4, or to void
    is_float, size = tensor.dtype.is_floating_point, tensor.itemsize
    if size != parameter.inner_bytes or is_float != (parameter.inner == FLOAT):
        expected = f"{_KINDS[parameter.inner]} of {parameter.inner_bytes} bytes"
        raise SignatureError(f"{where} expects a pointer to {expected}, not a tensor of {tensor.dtype}")


def _pack(where: str, value: Any, parameter: Parameter) -> bytes:
    code = _FORMATS.get((parameter.kind, parameter.bytes))
    if code is None:
        raise SignatureError(f"{where} is a structure of {parameter.bytes} bytes; pass its bytes, not {value!r}")
    try:
        return struct.pack(code, float(value) if parameter.kind == FLOAT else value.__index__())
    except (AttributeError, TypeError, ValueError, OverflowError, struct.error) as fault:
        expected = f"{_KINDS[parameter.kind]} of {parameter.bytes} bytes"
        raise SignatureError(f"{where} must be {expected}, not {value!r}: {fault}") from None
