"""What the verifier observed of each call of a series: leaves, mutated inputs and memory, from what it read while the
candidate was stopped and from the candidate's report."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.verification.attacks.aliased_output import OutputMemory, describe_outputs
from kernelwright.verification.attacks.redzone import POISON_BYTE, REDZONE_BYTES
from kernelwright.verification.execution import ObservedCall, find_mutations
from kernelwright.verification.transport.call_report import (
    CallReport,
    LeafDescriptor,
    decode_leaf_or_error,
    view_as_tensor,
)
from kernelwright.verification.transport.control_block import Extent, word
from kernelwright.verification.transport.tensor_codec import Packed, rebuild_views


@dataclass(frozen=True)
class StoppedRead:
    """Outputs, and blocks of inputs with their redzones, read while the candidate was stopped; `faulty_memory` as in
    `ObservedCall`."""

    extents: dict[Extent, Tensor]
    blocks: list[Tensor]
    unchanged: bool
    faulty_memory: str

    @property
    def inputs(self) -> list[Tensor]:
        """The blocks without their redzones."""
        return [block[REDZONE_BYTES : len(block) - REDZONE_BYTES] for block in self.blocks]


def outputs_by_call(report: CallReport, digests: dict[str, int], read: StoppedRead, calls: int) -> list[list[Tensor]]:
    """The elements of the outputs of each call, in the order in which the worker adds them to the chain.

    Args:
        digests: of the leaves that are not in memory, by path.
    """
    outputs: list[list[Tensor]] = [[] for _ in range(calls)]
    for path, leaf in report.leaves.items():
        number = int(path[1:].partition("]")[0]) if path.startswith("[") and path[1:2].isdigit() else 0
        if number >= calls:
            continue
        if path in digests:
            outputs[number].append(torch.frombuffer(word(digests[path]), dtype=torch.uint8))
        elif (whole := read.extents.get(leaf.extent or (0, 0))) is not None:
            outputs[number].append(view_as_tensor(whole, leaf).contiguous())
    return outputs


def make_observed_calls(
    report: CallReport,
    read: StoppedRead,
    packed: Packed,
    blocks: list[list[int]],
    inputs: Sequence[Args],
    reread: Callable[[dict[str, LeafDescriptor]], dict[str, Any]],
) -> list[ObservedCall]:
    """The observed call for each call of a series."""
    input_bytes = [block.clone() for block in read.inputs]
    corrupted = {at for at, block in enumerate(read.blocks) if not _redzones_intact(block)}
    after = rebuild_views(packed["leaves"], [block.untyped_storage() for block in input_bytes])
    mutated, out_of_bounds = find_mutations(packed, after, lambda: tensor_leaves(inputs), corrupted)
    tensors_per_call, observed = len(tensor_leaves(inputs[0])), []
    storages = [(blocks[leaf["block"]][0], blocks[leaf["block"]][1]) for leaf in packed["leaves"] if "block" in leaf]
    for number in range(len(inputs)):
        prefix = f"[{number}]" if len(inputs) > 1 else ""
        leaves = {path.removeprefix(prefix): one for path, one in report.leaves.items() if path.startswith(prefix)}
        indices = range(number * tensors_per_call, (number + 1) * tensors_per_call)
        observed.append(
            ObservedCall(
                structure=report.structure,
                leaves={path: decode_leaf_or_error(path, leaf, read.extents) for path, leaf in leaves.items()},
                devices={path: leaf.device for path, leaf in leaves.items()},
                mutated_inputs={at - indices.start: value for at, value in mutated.items() if at in indices},
                out_of_bounds_inputs=[at - indices.start for at in out_of_bounds if at in indices],
                complete_on_return=read.unchanged and report.is_stream_ordered,
                sent_paths=tuple(path for path, leaf in leaves.items() if leaf.sent is not None),
                reread_leaves=functools.partial(reread, leaves),
                memory=_describe_memory(leaves, storages, indices),
                faulty_memory=read.faulty_memory,
            )
        )
    return observed


def _describe_memory(
    leaves: dict[str, LeafDescriptor], storages: list[Extent], own_inputs: range
) -> dict[str, OutputMemory]:
    """What the memory of each output of one call is shared with; inputs of other calls count as its own ones."""
    outputs = {path: memory for path, leaf in leaves.items() if (memory := leaf.memory)}
    described = describe_outputs(outputs, storages)
    count = len(own_inputs)
    return {
        path: replace(one, inputs=frozenset(at % count for at in one.inputs)) if one.inputs else one
        for path, one in described.items()
    }


def _redzones_intact(block: Tensor) -> bool:
    return all(bool((redzone == POISON_BYTE).all()) for redzone in (block[:REDZONE_BYTES], block[-REDZONE_BYTES:]))
