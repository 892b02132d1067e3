"""A program's state: parameters and buffers by name, restored after every call.

Used in both processes; has no access to the expected values.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kernelwright.verification.transport.tensor_codec import to_strided

State = dict[str, Tensor]
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def named_state(program: Any) -> State:
    """Every parameter and buffer of a module, also of a compiled one, under all of its names; empty for other
    callables."""
    module = getattr(program, "_orig_mod", program)
    if not isinstance(module, torch.nn.Module):
        return {}
    named = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    return {name: value.detach() for name, value in named.items()}


def named_state_kinds(program: Any) -> dict[str, str]:
    """`parameter` or `buffer` for every name in `named_state`."""
    module = getattr(program, "_orig_mod", program)
    buffers = dict(module.named_buffers(remove_duplicate=False)) if isinstance(module, torch.nn.Module) else {}
    return {name: "buffer" if name in buffers else "parameter" for name in named_state(program)}


@contextlib.contextmanager
def preserve_state(program: Any) -> Iterator[Callable[[], State]]:
    """Restore parameters and buffers on exit; yields a function that returns those that changed."""
    modules = list(program.modules()) if isinstance(program, torch.nn.Module) else []
    saved_tensors = [(owner, dict(owner._parameters), dict(owner._buffers)) for owner in modules]
    saved = {name: value.clone() for name, value in named_state(program).items()}

    def changed() -> State:
        now = named_state(program)
        return {name: now[name] for name, old in saved.items() if name in now and not bitwise_equal(now[name], old)}

    def restore() -> None:
        for owner, parameters, buffers in saved_tensors:  # a buffer may have been replaced by another tensor
            owner._parameters.update(parameters)
            owner._buffers.update(buffers)
        with torch.no_grad():
            for name, value in changed().items():
                value.copy_(saved[name])

    try:
        yield changed
    except BaseException:
        with contextlib.suppress(Exception):  # fails in a broken CUDA context too, and must not hide the first error
            restore()
        raise
    restore()


def bitwise_equal(one: Any, other: Any) -> bool:
    """Whether two tensors have the same shape, dtype, device and bits, or two other values are equal or both NaN."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        return not one.numel() or torch.equal(*map(_bit_view, (one, other)))
    return type(one) is type(other) and bool(one == other or one != one)


def buffers_equal(one: Any, other: Any) -> bool:
    """Whether two buffers hold the same bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # bytes are read-only, and only read here
        return byte_tensors_equal(*(torch.frombuffer(data, dtype=torch.uint8) for data in (one, other)))


def byte_tensors_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two flat byte tensors are equal, compared in 8-byte words if aligned."""
    aligned = one.shape == other.shape and not any(
        each.numel() % 8 or each.storage_offset() % 8 for each in (one, other)
    )
    return torch.equal(*(each.view(torch.int64) for each in (one, other)) if aligned else (one, other))


def _bit_view(value: Tensor) -> Tensor:
    plain = to_strided(value.detach()).resolve_conj().resolve_neg().contiguous().view(-1)
    return plain.view(_BITS.get(plain.dtype.itemsize, torch.uint8))
