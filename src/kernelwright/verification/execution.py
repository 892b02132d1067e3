"""One observed call of a program: poisoned memory, inputs compared after the call, repeated with equal inputs.

Runs in the candidate's process, or in the verifier's for a callable. Has no access to the expected values.
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
from kernelwright.sandbox.exceptions import CHANGED_ARGUMENT, ChangedArgumentError, TaskError, to_task_error
from kernelwright.verification.attacks.aliased_output import OutputMemory, TensorMemory, describe_outputs
from kernelwright.verification.attacks.redzone import REDZONE_BYTE, RedzoneAllocator, poison_buffers
from kernelwright.verification.transport.result_containers import ResultContainers
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


@dataclass
class ObservedCall:
    """Result of one call.

    Attributes:
        structure: the structure of the result.
        leaves: its leaves by path, such as `[0]['sum']`: tensors, plain values, or the type name of anything else.
        devices: device type of each leaf that is a tensor, else empty.
        mutated_inputs: inputs whose elements changed, by index among the input tensors: the tensor after the call.
        out_of_bounds_inputs: indices of inputs with writes between or around their elements.
        changed_state: parameters and buffers of the program that changed, by name: the tensor after the call.
        second_leaves: leaves of a second, equal call where any bit differs; else None.
        complete_on_return: no change was observed after the call had returned.
        sent_paths: leaves that were sent in a message instead of being read from memory.
        repeat_call: makes the second, equal call, where that is left to the caller.
        reread_leaves: returns the leaves as they are a while later, where that is possible.
        memory: by path, what the memory of each output is shared with, where it is known.
        faulty_memory: why the memory of an output is not that of a tensor of its own, or an empty string.
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
    memory: dict[str, OutputMemory] = field(default_factory=dict)
    faulty_memory: str = ""

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves.values() if isinstance(leaf, Tensor)]


@dataclass(frozen=True)
class CallArguments:
    """Arguments of a call.

    Attributes:
        packed: the leaves of (args, kwargs), made into new tensors for each call; `spec` is their structure.
        local_values: this process's leaves, for those that were not transferred.
        output_sizes_bytes: expected output sizes, poisoned before each call.
        seed: of the random number generators in every call, so that reference and candidate draw the same numbers.
    """

    packed: Packed
    spec: pytree.TreeSpec
    local_values: list[Any]
    device: str
    output_sizes_bytes: list[int]
    seed: int = 0

    def make_leaves(self, allocator: RedzoneAllocator | None = None) -> list[Any]:
        """New leaves; with `allocator`, those on the CPU are placed between redzones, one buffer per storage."""
        allocate = allocator.allocate if allocator and self.device == "cpu" else None
        return unpack(self.packed, self.device, self.local_values, allocate)


def observe(program: Callable[..., Any], arguments: CallArguments, *, twice: bool) -> ObservedCall:
    """Call a program; with `twice` a second time with equal inputs, and compare.

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
    """Whether two calls returned the same bits."""
    return one.structure == other.structure and all(
        bitwise_equal(leaf, other.leaves[path]) for path, leaf in one.leaves.items()
    )


def _observe_once(program: Callable[..., Any], arguments: CallArguments) -> ObservedCall:
    gradients = any(leaf.get("gradient") for leaf in arguments.packed["leaves"])
    try:
        input_leaves, result, redzones = _run_in_redzones(program, arguments, gradients)
    except (Exception, SystemExit) as error:
        if gradients or "grad" not in str(error):
            raise to_task_error(error) from error
        # A program that computes gradients itself needs a graph; `outcome.run_program` does the same.
        input_leaves, result, redzones = _run_with_gradients(program, arguments)
    leaf_by_path = {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(result)[0]}
    leaf_copies = {path: _detached_copy(leaf) for path, leaf in leaf_by_path.items()}
    devices = {path: _device_type(leaf) for path, leaf in leaf_by_path.items()}
    mutated, out_of_bounds = find_mutations(
        arguments.packed, input_leaves, lambda: tensor_leaves(arguments.make_leaves()), set(redzones.corrupted_blocks())
    )
    memory = _describe_memory(leaf_by_path, input_leaves)
    return ObservedCall(describe_structure(result), leaf_copies, devices, mutated, out_of_bounds, memory=memory)


def _describe_memory(leaves: dict[str, Any], inputs: list[Any]) -> dict[str, OutputMemory]:
    outputs = {
        path: TensorMemory.of(leaf)
        for path, leaf in leaves.items()
        if isinstance(leaf, Tensor) and leaf.layout == torch.strided and leaf.device.type in ("cpu", "cuda")
    }
    storages = (one.untyped_storage() for one in inputs if isinstance(one, Tensor) and one.layout == torch.strided)
    return describe_outputs(outputs, [(storage.data_ptr(), storage.nbytes()) for storage in storages])


def _run_in_redzones(
    program: Callable[..., Any], arguments: CallArguments, gradients: bool
) -> tuple[list[Any], Any, RedzoneAllocator]:
    """The inputs after the call, its result, and the redzones around the inputs."""
    inputs, outputs = RedzoneAllocator(), RedzoneAllocator(arguments.device, REDZONE_BYTE)
    leaves = arguments.make_leaves(inputs)
    with _allocate_outputs_in(program, outputs):
        result = _call_poisoned(program, leaves, arguments, gradients)
    if corrupted := outputs.corrupted_blocks():
        raise TaskError(f"wrote outside output {corrupted[0]}")
    return leaves, result, inputs


def _run_with_gradients(
    program: Callable[..., Any], arguments: CallArguments
) -> tuple[list[Any], Any, RedzoneAllocator]:
    try:
        return _run_in_redzones(program, arguments, True)
    except (Exception, SystemExit) as error:
        raise to_task_error(error) from error


@contextlib.contextmanager
def _allocate_outputs_in(program: Callable[..., Any], allocator: RedzoneAllocator) -> Iterator[None]:
    """Allocate the outputs of a C++ or CUDA program between redzones for these calls."""
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
    containers = ResultContainers()
    given_leaves = containers.leaves([args, kwargs])
    poison_buffers(arguments.output_sizes_bytes, arguments.device)
    with temporary_seed(arguments.seed), torch.set_grad_enabled(gradients):
        result = program(*args, **kwargs)
        synchronize(arguments.device)
    if containers.have_changed([args, kwargs], given_leaves):
        raise ChangedArgumentError(CHANGED_ARGUMENT)
    return result


def _detached_copy(leaf: Any) -> Any:
    """Copy a leaf: an output may be a view of a tensor that the next call changes."""
    if isinstance(leaf, Tensor) and leaf.device.type in ("cpu", "cuda"):
        return contiguous_copy(leaf)
    return leaf if isinstance(leaf, PLAIN_TYPES) else type(leaf).__name__


def _device_type(leaf: Any) -> str:
    return leaf.device.type if isinstance(leaf, Tensor) else ""


def find_mutations(
    packed: Packed, after: list[Any], before: Callable[[], list[Tensor]], corrupted_blocks: set[int]
) -> tuple[dict[int, Tensor], list[int]]:
    """Inputs with changed elements, and inputs whose storage changed only between or around elements.

    Args:
        packed: the leaves before, from `extract_storages` or `pack`.
        after: the same leaves after the call.
        before: returns the input tensors as they were before, called only if needed.
        corrupted_blocks: blocks with writes outside of their bounds.
    """
    pairs = [(leaf, value) for leaf, value in zip(packed["leaves"], after, strict=True) if isinstance(value, Tensor)]
    changed: dict[int, bool] = {}
    for leaf, value in pairs:
        if (block := leaf["block"]) not in changed:
            changed[block] = not _storage_unchanged(storage_bytes(value), packed["blocks"][block])
    if not corrupted_blocks and not any(changed.values()):
        return {}, []
    original = before()
    mutated = {
        at: value.detach()
        for at, (leaf, value) in enumerate(pairs)
        if changed[leaf["block"]] and not bitwise_equal(value.detach(), original[at].detach())
    }
    mutated_blocks = {pairs[at][0]["block"] for at in mutated}
    affected_blocks = corrupted_blocks | {block for block, differs in changed.items() if differs} - mutated_blocks
    out_of_bounds = [at for at, (leaf, _) in enumerate(pairs) if leaf["block"] in affected_blocks]
    return mutated, out_of_bounds


def _storage_unchanged(now: Tensor, before: Tensor | list[bytes]) -> bool:
    if isinstance(before, Tensor):
        return byte_tensors_equal(now, before)
    return all(map(buffers_equal, to_chunks(now), before))
