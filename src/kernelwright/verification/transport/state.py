"""What a program keeps between calls: its parameters and buffers by name, put back after every call.

Used on both sides; knows nothing about what is right.
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
    """Every parameter and buffer of a module, also of a compiled one, by every name it goes by; nothing otherwise."""
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
    """Parameters and buffers are put back afterwards; gives a function that tells the values of those that changed."""
    homes = list(program.modules()) if isinstance(program, torch.nn.Module) else []
    held = [(home, dict(home._parameters), dict(home._buffers)) for home in homes]
    saved = {name: value.clone() for name, value in named_state(program).items()}

    def changed() -> State:
        now = named_state(program)
        return {name: now[name] for name, old in saved.items() if name in now and not bitwise_equal(now[name], old)}

    def put_back() -> None:
        for home, parameters, buffers in held:  # a buffer may have been replaced by another tensor
            home._parameters.update(parameters)
            home._buffers.update(buffers)
        with torch.no_grad():
            for name, value in changed().items():
                value.copy_(saved[name])

    try:
        yield changed
    except BaseException:
        with contextlib.suppress(Exception):  # a broken CUDA context refuses this too, and must not hide why
            put_back()
        raise
    put_back()


def bitwise_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        return not one.numel() or torch.equal(*map(_bit_view, (one, other)))
    return type(one) is type(other) and bool(one == other or one != one)


def buffers_equal(one: Any, other: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # bytes are read-only, and only read here
        return byte_tensors_equal(*(torch.frombuffer(data, dtype=torch.uint8) for data in (one, other)))


def byte_tensors_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two flat tensors of bytes are the same, compared eight at a time where they can be."""
    whole = one.shape == other.shape and not any(each.numel() % 8 or each.storage_offset() % 8 for each in (one, other))
    return torch.equal(*(each.view(torch.int64) for each in (one, other)) if whole else (one, other))


def _bit_view(value: Tensor) -> Tensor:
    plain = to_strided(value.detach()).resolve_conj().resolve_neg().contiguous().view(-1)
    return plain.view(_BITS.get(plain.dtype.itemsize, torch.uint8))
