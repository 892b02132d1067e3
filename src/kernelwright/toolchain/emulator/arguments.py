"""The arguments of a launch, held against what the kernel takes."""

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
MAX_GRID, MAX_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
OTHER, FLOAT, SIGNED, UNSIGNED, POINTER = range(5)
_FORMATS = {
    (FLOAT, 4): "f",
    (FLOAT, 8): "d",
    **{(SIGNED, 1 << i): letter for i, letter in enumerate("bhiq")},
    **{(UNSIGNED, 1 << i): letter for i, letter in enumerate("BHIQ")},
}
_KINDS = {FLOAT: "float", SIGNED: "int", UNSIGNED: "unsigned"}
Dim3 = int | Sequence[int]


@dataclass(frozen=True)
class LaunchShape:
    """The blocks of a launch and the threads of each, both with three numbers."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int

    @classmethod
    def from_sizes(cls, grid: Dim3, block: Dim3, shared_bytes: int) -> LaunchShape:
        """The same of one to three numbers each.

        Raises:
            UsageError: more than a GPU takes, or less than one.
        """
        blocks, threads = _to_dim3("grid", grid, MAX_GRID), _to_dim3("block", block, MAX_BLOCK)
        if (count := threads[0] * threads[1] * threads[2]) > MAX_THREADS_PER_BLOCK:
            raise UsageError(f"a block of {threads} has {count} threads; {MAX_THREADS_PER_BLOCK} is the most")
        if not 0 <= shared_bytes <= MAX_SHARED_BYTES:
            raise UsageError(f"{shared_bytes} bytes of dynamic shared memory; {MAX_SHARED_BYTES} is the most")
        return cls(blocks, threads, shared_bytes)


def _to_dim3(what: str, size: Dim3, most: tuple[int, int, int]) -> tuple[int, int, int]:
    given = [int(size)] if not isinstance(size, Sequence) else [int(one) for one in size]
    numbers = [*given, *[1] * (3 - len(given))]
    if len(numbers) != 3 or not given or not all(1 <= one <= top for one, top in zip(numbers, most, strict=True)):
        raise UsageError(f"{what} {size!r}: one to three numbers from 1 to {most}")
    return numbers[0], numbers[1], numbers[2]


@dataclass(frozen=True)
class Argument:
    """One argument: a tensor, or the bytes of a number."""

    name: str
    tensor: torch.Tensor | None
    value: bytes = b""

    def buffer(self) -> Any:
        """Where the parameter's bytes lie; the caller keeps it alive."""
        data = self.value if self.tensor is None else struct.pack("P", self.tensor.data_ptr())
        return ctypes.create_string_buffer(data, len(data))


def bind(
    kernel: str, arguments: Sequence[Any], parameters: Sequence[Parameter], names: Sequence[str]
) -> list[Argument]:
    """Each argument as its parameter takes it.

    Raises:
        SignatureError: another number of them, or one that does not fit; the message names the parameter.
    """
    if len(arguments) != len(parameters):
        raise SignatureError(f"{kernel} takes {len(parameters)} arguments ({', '.join(names)}), not {len(arguments)}")
    labels = names if len(names) == len(parameters) else [f"argument {i}" for i in range(len(parameters))]
    return [_bind_one(kernel, *each) for each in zip(arguments, parameters, labels, strict=True)]


def _bind_one(kernel: str, given: Any, parameter: Parameter, name: str) -> Argument:
    import torch

    where = f"{kernel}: {name}"
    if parameter.kind == POINTER:
        if given is None:
            return Argument(name, None, bytes(parameter.bytes))
        if not isinstance(given, torch.Tensor):
            raise SignatureError(f"{where} is a pointer; {given!r} is no tensor")
        _require_fit(where, given, parameter)
        return Argument(name, given)
    if isinstance(given, torch.Tensor):
        raise SignatureError(f"{where} is a number, and a tensor of {tuple(given.shape)} was given")
    if isinstance(given, bytes | bytearray) and len(given) == parameter.bytes:
        return Argument(name, None, bytes(given))
    return Argument(name, None, _pack(where, given, parameter))


def _require_fit(where: str, tensor: torch.Tensor, parameter: Parameter) -> None:
    if tensor.device.type != "cpu":
        raise SignatureError(f"{where} is on {tensor.device}; the emulator runs on the CPU")
    if (parameter.inner, parameter.inner_bytes) not in _FORMATS:
        return  # a pointer to a structure such as float4, or to void
    real, size = tensor.dtype.is_floating_point, tensor.itemsize
    if size != parameter.inner_bytes or real != (parameter.inner == FLOAT):
        wanted = f"{_KINDS[parameter.inner]} of {parameter.inner_bytes} bytes"
        raise SignatureError(f"{where} points to {wanted}, and a tensor of {tensor.dtype} was given")


def _pack(where: str, given: Any, parameter: Parameter) -> bytes:
    letter = _FORMATS.get((parameter.kind, parameter.bytes))
    if letter is None:
        raise SignatureError(f"{where} is a structure of {parameter.bytes} bytes; give its bytes, not {given!r}")
    try:
        return struct.pack(letter, float(given) if parameter.kind == FLOAT else given.__index__())
    except (AttributeError, TypeError, ValueError, OverflowError, struct.error) as fault:
        wanted = f"{_KINDS[parameter.kind]} of {parameter.bytes} bytes"
        raise SignatureError(f"{where} is {wanted}, and {given!r} is none: {fault}") from None
