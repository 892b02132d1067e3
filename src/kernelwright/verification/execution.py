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
from kernelwright.problems.problem import temporary_seed, tensor_leaves
from kernelwright.sandbox.exceptions import TaskError, to_task_error
from kernelwright.verification.attacks.redzone import REDZONE_BYTE, RedzoneAllocator, poison_buffers
from kernelwright.verification.transport.state import (
    State,
    bitwise_equal,
    buffers_equal,
    byte_tensors_equal,
    preserve_state,
)
from kernelwright.verification.transport.tensor_codec import (
    PLAIN_TYPES,
    Packed,
    contiguous_copy,
    describe_structure,
    storage_bytes,
    to_chunks,
    unpack,
)

CALL_SEED = 0
"""Random operators draw alike in reference and candidate: `outcome.outputs` seeds the same way."""


@dataclass
class ObservedCall:
    """What a call gave.

    Attributes:
        structure: the structure of the result.
        leaves: its leaves by path, such as `[0]['sum']`: tensors, plain values, or the name of any other type.
        devices: of each leaf that is a tensor, else empty.
        mutated_inputs: inputs whose elements changed, by their place among the input tensors: the tensor afterwards.
        out_of_bounds_inputs: places of inputs around whose elements something was written.
        changed_state: parameters and buffers of the program that changed, by name: the tensor afterwards.
        second_leaves: the leaves of a second, equal call, where they differ in any bit; else None.
        complete_on_return: whether nothing of them changed any more after the call had returned, as far as could be
            seen.
        sent_paths: leaves that were sent in a message and not read where they lie.
        repeat_call: makes the second, equal call, where it is left to whoever looks at the first.
        reread_leaves: gives the leaves as they are a while later, where that can be seen.
    """

    structure: str
    leaves: dict[str, Any]
    devices: dict[str, str]
    mutated_inputs: dict[int, Tensor] = field(default_factory=dict)
    out_of_bounds_inputs: list[int] = field(default_factory=list)
    changed_state: State = field(default_factory=dict)
    second_leaves: dict[str, Any] | None = None
    complete_on_return: bool = True
    sent_paths: tuple[str, ...] = ()
    repeat_call: Callable[[], ObservedCall] | None = None
    reread_leaves: Callable[[], dict[str, Any]] | None = None

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves.values() if isinstance(leaf, Tensor)]


@dataclass(frozen=True)
class CallArguments:
    """What a program is to be called with.

    Attributes:
        packed: the leaves of (args, kwargs), made into new tensors for each call; `spec` is their structure.
        local_values: the leaves as this process has them, for those that did not cross.
        output_sizes_bytes: of the outputs to come, poisoned before each call.
    """

    packed: Packed
    spec: pytree.TreeSpec
    local_values: list[Any]
    device: str
    output_sizes_bytes: list[int]

    def make_leaves(self, allocator: RedzoneAllocator | None = None) -> list[Any]:
        """New leaves; with `allocator`, those on the CPU lie between margins, one piece for each block."""
        fenced = allocator.allocate if allocator and self.device == "cpu" else None
        return unpack(self.packed, self.device, self.local_values, fenced)


def observe(program: Callable[..., Any], arguments: CallArguments, *, twice: bool) -> ObservedCall:
    """Calls a program; with `twice` again with equal inputs, and compares.

    Raises:
        TaskError, MemoryLimitError: the program raised.
    """
    with preserve_state(program) as changed:
        observed = _observe_once(program, arguments)
        observed.changed_state = {name: contiguous_copy(value) for name, value in changed().items()}
    if twice:
        with preserve_state(program):
            second = _observe_once(program, arguments)
        observed.second_leaves = None if results_bitwise_equal(observed, second) else second.leaves
    return observed


def results_bitwise_equal(one: ObservedCall, other: ObservedCall) -> bool:
    """Whether two calls gave the same bits."""
    return one.structure == other.structure and all(
        bitwise_equal(leaf, other.leaves[path]) for path, leaf in one.leaves.items()
    )


def _observe_once(program: Callable[..., Any], arguments: CallArguments) -> ObservedCall:
    gradients = any(leaf.get("gradient") for leaf in arguments.packed["leaves"])
    try:
        leaves, result, fences = _run_in_redzones(program, arguments, gradients)
    except (Exception, SystemExit) as fault:
        if gradients or "grad" not in str(fault):
            raise to_task_error(fault) from fault
        # A program that takes gradients itself needs a graph; the reference is treated alike (`golden`).
        leaves, result, fences = _run_with_gradients(program, arguments)
    found = {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(result)[0]}
    kept = {path: _detached_copy(leaf) for path, leaf in found.items()}
    devices = {path: _device_type(leaf) for path, leaf in found.items()}
    mutated, outside = find_mutations(
        arguments.packed, leaves, lambda: tensor_leaves(arguments.make_leaves()), set(fences.corrupted_blocks())
    )
    return ObservedCall(describe_structure(result), kept, devices, mutated, outside)


def _run_in_redzones(
    program: Callable[..., Any], arguments: CallArguments, gradients: bool
) -> tuple[list[Any], Any, RedzoneAllocator]:
    """The inputs as the program left them, its result, and the fences around the inputs."""
    inputs, outputs = RedzoneAllocator(), RedzoneAllocator(arguments.device, REDZONE_BYTE)
    leaves = arguments.make_leaves(inputs)
    with _allocate_outputs_in(program, outputs):
        result = _call_poisoned(program, leaves, arguments, gradients)
    if broken := outputs.corrupted_blocks():
        raise TaskError(f"wrote outside output {broken[0]}")
    return leaves, result, inputs


def _run_with_gradients(
    program: Callable[..., Any], arguments: CallArguments
) -> tuple[list[Any], Any, RedzoneAllocator]:
    try:
        return _run_in_redzones(program, arguments, True)
    except (Exception, SystemExit) as fault:
        raise to_task_error(fault) from fault


@contextlib.contextmanager
def _allocate_outputs_in(program: Callable[..., Any], allocator: RedzoneAllocator) -> Iterator[None]:
    """Where we make a program's outputs, they lie between margins for these calls."""
    if not isinstance(program, CompiledProgram):
        yield
        return
    program.empty = allocator.empty
    try:
        yield
    finally:
        del program.empty


def _call_poisoned(program: Callable[..., Any], leaves: list[Any], arguments: CallArguments, gradients: bool) -> Any:
    args, kwargs = pytree.tree_unflatten(leaves, arguments.spec)
    poison_buffers(arguments.output_sizes_bytes, arguments.device)
    with temporary_seed(CALL_SEED), torch.set_grad_enabled(gradients):
        result = program(*args, **kwargs)
        synchronize(arguments.device)
    return result


def _detached_copy(leaf: Any) -> Any:
    """A copy: an output may be a view of something that the next call changes."""
    if isinstance(leaf, Tensor) and leaf.device.type in ("cpu", "cuda"):
        return contiguous_copy(leaf)
    return leaf if isinstance(leaf, PLAIN_TYPES) else type(leaf).__name__


def _device_type(leaf: Any) -> str:
    return leaf.device.type if isinstance(leaf, Tensor) else ""


def find_mutations(
    packed: Packed, after: list[Any], before: Callable[[], list[Tensor]], corrupted_blocks: set[int]
) -> tuple[dict[int, Tensor], list[int]]:
    """Inputs of which an element changed; and those whose storage changed only between or around all elements.

    Args:
        packed: the leaves before, as `hold` or `pack` gives them.
        after: the same leaves as the call left them.
        before: gives the tensors among the leaves before, once they are needed.
        corrupted_blocks: the blocks outside of which something was written.
    """
    pairs = [(leaf, value) for leaf, value in zip(packed["leaves"], after, strict=True) if isinstance(value, Tensor)]
    changed: dict[int, bool] = {}
    for leaf, value in pairs:
        if (block := leaf["block"]) not in changed:
            changed[block] = not _storage_unchanged(storage_bytes(value), packed["blocks"][block])
    if not corrupted_blocks and not any(changed.values()):
        return {}, []
    old = before()
    mutated = {
        at: value.detach()
        for at, (leaf, value) in enumerate(pairs)
        if changed[leaf["block"]] and not bitwise_equal(value.detach(), old[at].detach())
    }
    seen = {pairs[at][0]["block"] for at in mutated}
    around = corrupted_blocks | {block for block, differs in changed.items() if differs} - seen
    outside = [at for at, (leaf, _) in enumerate(pairs) if leaf["block"] in around]
    return mutated, outside


def _storage_unchanged(now: Tensor, before: Tensor | list[bytes]) -> bool:
    if isinstance(before, Tensor):
        return byte_tensors_equal(now, before)
    return all(map(buffers_equal, to_chunks(now), before))
