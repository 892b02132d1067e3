"""One call of a program under observation: poisoned memory, inputs compared afterwards, the same call twice.

Runs in the candidate's process, or for a live object in ours. Knows nothing about what is right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.measure.clock import synchronize
from kernelwright.problems.compiled import CompiledProgram
from kernelwright.problems.problem import seeded, tensors
from kernelwright.sandbox.exceptions import TaskError, task_error
from kernelwright.verification.attacks.redzone import GUARD_BYTE, Fences, poison_buffers
from kernelwright.verification.transport.state import State, equal_bytes, kept_state, same_bits, same_bytes
from kernelwright.verification.transport.tensor_codec import (
    PLAIN,
    Packed,
    compact,
    outline,
    pieces,
    storage_bytes,
    unpack,
)

SEED = 0
"""Random operators draw alike in reference and candidate: `outcome.outputs` seeds the same way."""


@dataclass
class Observed:
    """What a call gave.

    Attributes:
        outline: the structure of the result.
        leaves: its leaves by path, such as `[0]['sum']`: tensors, plain values, or the name of any other type.
        devices: of each leaf that is a tensor, else empty.
        mutated: inputs whose elements changed, by their place among the input tensors: the tensor afterwards.
        outside: places of inputs around whose elements something was written.
        state: parameters and buffers of the program that changed, by name: the tensor afterwards.
        again: the leaves of a second, equal call, where they differ in any bit; else None.
        finished: whether nothing of them changed any more after the call had returned, as far as could be seen.
        sent: leaves that were sent in a message and not read where they lie.
        repeat: makes the second, equal call, where it is left to whoever looks at the first.
        later: gives the leaves as they are a while later, where that can be seen.
    """

    outline: str
    leaves: dict[str, Any]
    devices: dict[str, str]
    mutated: dict[int, Tensor] = field(default_factory=dict)
    outside: list[int] = field(default_factory=list)
    state: State = field(default_factory=dict)
    again: dict[str, Any] | None = None
    finished: bool = True
    sent: tuple[str, ...] = ()
    repeat: Callable[[], Observed] | None = None
    later: Callable[[], dict[str, Any]] | None = None

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves.values() if isinstance(leaf, Tensor)]


@dataclass(frozen=True)
class Call:
    """What a program is to be called with.

    Attributes:
        packed: the leaves of (args, kwargs), made into new tensors for each call; `spec` is their structure.
        own: the leaves as this process has them, for those that did not cross.
        sizes_bytes: of the outputs to come, poisoned before each call.
    """

    packed: Packed
    spec: pytree.TreeSpec
    own: list[Any]
    device: str
    sizes_bytes: list[int]

    def leaves(self, fences: Fences | None = None) -> list[Any]:
        """New leaves; with `fences`, those on the CPU lie between margins, one piece for each block."""
        fenced = fences.memory if fences and self.device == "cpu" else None
        return unpack(self.packed, self.device, self.own, fenced)


def observe(program: Callable[..., Any], call: Call, *, twice: bool) -> Observed:
    """Calls a program; with `twice` again with equal inputs, and compares.

    Raises:
        TaskError, MemoryLimitError: the program raised.
    """
    with kept_state(program) as changed:
        observed = _observe_once(program, call)
        observed.state = {name: compact(value) for name, value in changed().items()}
    if twice:
        with kept_state(program):
            second = _observe_once(program, call)
        observed.again = None if same_results(observed, second) else second.leaves
    return observed


def same_results(one: Observed, other: Observed) -> bool:
    """Whether two calls gave the same bits."""
    return one.outline == other.outline and all(
        same_bits(leaf, other.leaves[path]) for path, leaf in one.leaves.items()
    )


def _observe_once(program: Callable[..., Any], call: Call) -> Observed:
    gradients = any(leaf.get("gradient") for leaf in call.packed["leaves"])
    try:
        leaves, result, fences = _attempt(program, call, gradients)
    except (Exception, SystemExit) as fault:
        if gradients or "grad" not in str(fault):
            raise task_error(fault) from fault
        # A program that takes gradients itself needs a graph; the reference is treated alike (`golden`).
        leaves, result, fences = _attempt_blamed(program, call)
    found = {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(result)[0]}
    kept = {path: _kept(leaf) for path, leaf in found.items()}
    devices = {path: _device(leaf) for path, leaf in found.items()}
    mutated, outside = changes(call.packed, leaves, lambda: tensors(call.leaves()), set(fences.broken()))
    return Observed(outline(result), kept, devices, mutated, outside)


def _attempt(program: Callable[..., Any], call: Call, gradients: bool) -> tuple[list[Any], Any, Fences]:
    """The inputs as the program left them, its result, and the fences around the inputs."""
    inputs, outputs = Fences(), Fences(call.device, GUARD_BYTE)
    leaves = call.leaves(inputs)
    with _outputs_in(program, outputs):
        result = _call(program, leaves, call, gradients)
    if broken := outputs.broken():
        raise TaskError(f"wrote outside output {broken[0]}")
    return leaves, result, inputs


def _attempt_blamed(program: Callable[..., Any], call: Call) -> tuple[list[Any], Any, Fences]:
    try:
        return _attempt(program, call, True)
    except (Exception, SystemExit) as fault:
        raise task_error(fault) from fault


@contextlib.contextmanager
def _outputs_in(program: Callable[..., Any], fences: Fences) -> Iterator[None]:
    """Where we make a program's outputs, they lie between margins for these calls."""
    if not isinstance(program, CompiledProgram):
        yield
        return
    program.empty = fences.empty
    try:
        yield
    finally:
        del program.empty


def _call(program: Callable[..., Any], leaves: list[Any], call: Call, gradients: bool) -> Any:
    args, kwargs = pytree.tree_unflatten(leaves, call.spec)
    poison_buffers(call.sizes_bytes, call.device)
    with seeded(SEED), torch.set_grad_enabled(gradients):
        result = program(*args, **kwargs)
        synchronize(call.device)
    return result


def _kept(leaf: Any) -> Any:
    """A copy: an output may be a view of something that the next call changes."""
    if isinstance(leaf, Tensor) and leaf.device.type in ("cpu", "cuda"):
        return compact(leaf)
    return leaf if isinstance(leaf, PLAIN) else type(leaf).__name__


def _device(leaf: Any) -> str:
    return leaf.device.type if isinstance(leaf, Tensor) else ""


def changes(
    packed: Packed, after: list[Any], before: Callable[[], list[Tensor]], broken: set[int]
) -> tuple[dict[int, Tensor], list[int]]:
    """Inputs of which an element changed; and those whose storage changed only between or around all elements.

    Args:
        packed: the leaves before, as `hold` or `pack` gives them.
        after: the same leaves as the call left them.
        before: gives the tensors among the leaves before, once they are needed.
        broken: the blocks outside of which something was written.
    """
    pairs = [(leaf, value) for leaf, value in zip(packed["leaves"], after, strict=True) if isinstance(value, Tensor)]
    changed: dict[int, bool] = {}
    for leaf, value in pairs:
        if (block := leaf["block"]) not in changed:
            changed[block] = not _same_memory(storage_bytes(value), packed["blocks"][block])
    if not broken and not any(changed.values()):
        return {}, []
    old = before()
    mutated = {
        at: value.detach()
        for at, (leaf, value) in enumerate(pairs)
        if changed[leaf["block"]] and not same_bits(value.detach(), old[at].detach())
    }
    seen = {pairs[at][0]["block"] for at in mutated}
    around = broken | {block for block, differs in changed.items() if differs} - seen
    outside = [at for at, (leaf, _) in enumerate(pairs) if leaf["block"] in around]
    return mutated, outside


def _same_memory(now: Tensor, before: Tensor | list[bytes]) -> bool:
    if isinstance(before, Tensor):
        return equal_bytes(now, before)
    return all(map(same_bytes, pieces(now), before))
