"""One call of a program under observation: poisoned memory, inputs compared afterwards, the same call twice.

Runs in the candidate's process, or for a live object in ours. Knows nothing about what is right.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.measure.clock import synchronize
from kernelwright.problems.problem import seeded, tensors
from kernelwright.sandbox.faults import task_error
from kernelwright.verify.crossing import PLAIN, Packed, compact, outline, storage_pieces, unpack
from kernelwright.verify.poison import poison_buffers

SEED = 0
"""Random operators draw alike in reference and candidate: `golden.outputs` seeds the same way."""


@dataclass
class Observed:
    """What a call gave.

    Attributes:
        outline: the structure of the result.
        leaves: its leaves by path, such as `[0]['sum']`: tensors, plain values, or the name of any other type.
        devices: of each leaf that is a tensor, else empty.
        mutated: inputs whose elements changed, by their place among the input tensors: the tensor afterwards.
        outside: places of inputs around whose elements something was written.
        parameters: names of the program's parameters that changed.
        again: the leaves of a second, equal call, where they differ in any bit; else None.
    """

    outline: str
    leaves: dict[str, Any]
    devices: dict[str, str]
    mutated: dict[int, Tensor] = field(default_factory=dict)
    outside: list[int] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    again: dict[str, Any] | None = None


@dataclass(frozen=True)
class Call:
    """What a program is to be called with.

    Attributes:
        packed: the leaves of (args, kwargs) as bytes, made into new tensors for each call; `spec` is their structure.
        own: the leaves as this process has them, for those that did not cross.
        sizes_bytes: of the outputs to come, poisoned before each call.
    """

    packed: Packed
    spec: pytree.TreeSpec
    own: list[Any]
    device: str
    sizes_bytes: list[int]

    def leaves(self) -> list[Any]:
        return unpack(self.packed, self.device, self.own)


def observe(program: Callable[..., Any], call: Call, *, twice: bool) -> Observed:
    """Calls a program; with `twice` again with equal inputs, and compares.

    Raises:
        TaskError, MemoryLimitError: the program raised.
    """
    with kept_state(program) as changed:
        observed = _observe_once(program, call)
        observed.parameters = changed()
    if twice:
        with kept_state(program):
            second = _observe_once(program, call)
        same = second.outline == observed.outline and all(
            same_bits(leaf, second.leaves[path]) for path, leaf in observed.leaves.items()
        )
        observed.again = None if same else second.leaves
    return observed


def _observe_once(program: Callable[..., Any], call: Call) -> Observed:
    leaves = call.leaves()
    gradients = any(t.requires_grad for t in tensors(leaves))
    try:
        result = _call(program, leaves, call, gradients)
    except (Exception, SystemExit) as fault:
        if gradients or "grad" not in str(fault):
            raise task_error(fault) from fault
        # A program that takes gradients itself needs a graph; the reference is treated alike (`golden`).
        leaves = call.leaves()
        result = _call_blamed(program, leaves, call)
    found = {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(result)[0]}
    kept = {path: _kept(leaf) for path, leaf in found.items()}
    devices = {path: _device(leaf) for path, leaf in found.items()}
    return Observed(outline(result), kept, devices, *_mutated(call, leaves))


def _call(program: Callable[..., Any], leaves: list[Any], call: Call, gradients: bool) -> Any:
    args, kwargs = pytree.tree_unflatten(leaves, call.spec)
    poison_buffers(call.sizes_bytes, call.device)
    with seeded(SEED), torch.set_grad_enabled(gradients):
        result = program(*args, **kwargs)
        synchronize(call.device)
    return result


def _call_blamed(program: Callable[..., Any], leaves: list[Any], call: Call) -> Any:
    try:
        return _call(program, leaves, call, True)
    except (Exception, SystemExit) as fault:
        raise task_error(fault) from fault


def _kept(leaf: Any) -> Any:
    """A copy: an output may be a view of something that the next call changes."""
    if isinstance(leaf, Tensor) and leaf.device.type in ("cpu", "cuda"):
        return compact(leaf)
    return leaf if isinstance(leaf, PLAIN) else type(leaf).__name__


def _device(leaf: Any) -> str:
    return leaf.device.type if isinstance(leaf, Tensor) else ""


def _mutated(call: Call, leaves: list[Any]) -> tuple[dict[int, Tensor], list[int]]:
    """Inputs of which an element changed; and those whose storage changed only between or around all elements."""
    packed = call.packed
    views = [(leaf, value) for leaf, value in zip(packed["leaves"], leaves, strict=True) if isinstance(value, Tensor)]
    changed: dict[int, bool] = {}
    for leaf, value in views:
        if (block := leaf["block"]) not in changed:
            changed[block] = not all(map(same_bytes, storage_pieces(value), packed["blocks"][block]))
    if not any(changed.values()):
        return {}, []
    before = tensors(call.leaves())
    mutated = {
        at: value.detach()
        for at, (leaf, value) in enumerate(views)
        if changed[leaf["block"]] and not same_bits(value.detach(), before[at].detach())
    }
    seen = {views[at][0]["block"] for at in mutated}
    outside = [at for at, (leaf, _) in enumerate(views) if changed[leaf["block"]] and leaf["block"] not in seen]
    return mutated, outside


def same_bytes(one: Any, other: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # bytes are read-only, and only read here
        return torch.equal(*(torch.frombuffer(data, dtype=torch.uint8) for data in (one, other)))


def same_bits(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        return not one.numel() or torch.equal(*(t.contiguous().view(-1).view(torch.uint8) for t in (one, other)))
    return type(one) is type(other) and bool(one == other or one != one)


@contextlib.contextmanager
def kept_state(program: Callable[..., Any]) -> Iterator[Callable[[], list[str]]]:
    """Parameters and buffers of a module are put back afterwards; gives a function that names changed parameters."""
    module = program if isinstance(program, torch.nn.Module) else torch.nn.Module()
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    saved = {name: value.detach().clone() for name, value in named.items()}
    parameters = {name for name, _ in module.named_parameters()}

    def changed() -> list[str]:
        return [name for name, value in named.items() if not same_bits(value.detach(), saved[name])]

    def put_back() -> None:
        with torch.no_grad():
            for name in changed():
                named[name].copy_(saved[name])

    try:
        yield lambda: [name for name in changed() if name in parameters]
    except BaseException:
        with contextlib.suppress(Exception):  # a broken CUDA context refuses this too, and must not hide why
            put_back()
        raise
    put_back()
