"""Bytes that a call must read and write, from its schema, with corrections for some operators."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch

from kernelwright.work.calls import OperatorCall, SchemaArgument, shape_of, tensors_in
from kernelwright.work.regions import ByteRange
from kernelwright.work.storages import StorageTracker, TrackedStorage, tensor_byte_range
from kernelwright.work.vector import FILLS

OVERWRITING_OPS = FILLS | {
    "copy", "normal", "uniform", "bernoulli", "random", "exponential", "log_normal", "cauchy", "geometric",
    "foreach_copy", "foreach_zero",
}  # fmt: skip
"""Calls whose in-place form does not read the previous content."""

SHAPE_ONLY_ARGUMENTS = {
    "zeros_like": "self", "ones_like": "self", "full_like": "self", "new_zeros": "self", "new_ones": "self",
    "new_full": "self", "rand_like": "self", "randn_like": "self", "randint_like": "self",
    "nll_loss_backward": "self", "max_pool2d_backward": "self", "layer_norm_backward": "bias",
}  # fmt: skip
"""Arguments of which only the shape is used."""

GATHERED_ARGUMENTS = {
    "embedding": "weight", "index": "self", "index_select": "self", "gather": "self", "take": "self",
    "masked_select": "self", "embedding_bag": "weight",
}  # fmt: skip
"""Arguments of which only the returned elements are read."""

SCATTERING_OPS = {
    "index_put", "put", "index_add", "index_copy", "index_fill", "index_reduce", "scatter", "scatter_add",
    "scatter_reduce",
}  # fmt: skip
"""In place, these read and write only the indexed elements."""


MAX_SMEM_ROW_BYTES = 48 * 1024
"""Shared memory that a block has by default."""


class MemoryAccess(NamedTuple):
    """One tensor's access in a call: storage, bytes, and the argument that it belongs to."""

    storage: TrackedStorage
    byte_range: ByteRange
    argument: str = ""
    item_bytes: int = 1


def find_reads(call: OperatorCall, storages: StorageTracker) -> list[MemoryAccess]:
    """Reads of a call; determine them before it runs, since it may change strides and sizes."""
    reads = []
    for argument in call.schema.arguments or _positional_arguments(call):
        for tensor in call.tensors(argument.name) if argument.takes_tensors else ():
            storage, new = storages.find(tensor, is_allocated=False)
            storage.is_lifted |= new and call.schema.key == "lift_fresh"
            if not _is_unread(call, argument):
                reads.append(
                    MemoryAccess(storage, tensor_byte_range(tensor, storage), argument.name, tensor.element_size())
                )
    return reads


def input_passes(call: OperatorCall) -> int:
    """How often torch's kernel reads the input from memory; depends on its implementation, not on the algorithm.

    Softmax and log-softmax on CUDA read rows that exceed a block's shared memory three times (maximum, sum, result).
    Measured on an H200: 3.97 ms for 8192 x 128256 float32, which is 16.8 GB at 4.24 TB/s.
    """
    if call.schema.key not in ("softmax", "log_softmax") or not call.inputs:
        return 1
    values, dim = call.inputs[0], call["dim"]
    if values.device.type != "cuda" or not isinstance(dim, int) or values.dim() == 0:
        return 1
    return 3 if values.shape[dim] * values.element_size() > MAX_SMEM_ROW_BYTES else 1


def find_writes(call: OperatorCall, storages: StorageTracker) -> tuple[list[MemoryAccess], int]:
    """Writes of a call, in place or to new storages, and the bytes of the new ones; determine them after it ran."""
    writes = []
    for argument in call.schema.arguments:
        for tensor in call.tensors(argument.name) if _mutates(call, argument) else ():
            storage, _ = storages.find(tensor, is_allocated=False)
            writes.append(
                MemoryAccess(storage, tensor_byte_range(tensor, storage), argument.name, tensor.element_size())
            )
    allocated: dict[int, TrackedStorage] = {}
    for tensor in call.outputs:
        storage, new = storages.find(tensor, is_allocated=True)
        if new:
            allocated[storage.storage_id] = storage
        if storage.storage_id in allocated:
            writes.append(MemoryAccess(storage, tensor_byte_range(tensor, storage)))
    return writes, sum(storage.bytes for storage in allocated.values())


def narrow_to_indexed(call: OperatorCall, access: MemoryAccess) -> MemoryAccess:
    """Restrict the access to the elements that the call indexes."""
    if (num_indexed := _indexed_elements(call, access.argument)) is None:
        return access
    return access._replace(byte_range=access.byte_range.with_gathered(num_indexed * access.item_bytes))


def _positional_arguments(call: OperatorCall) -> list[SchemaArgument]:
    return [SchemaArgument(name, False, False) for name in call.values]


def _is_unread(call: OperatorCall, argument: SchemaArgument) -> bool:
    key = call.schema.key
    if argument.is_out or SHAPE_ONLY_ARGUMENTS.get(key) == argument.name:
        return True
    if key == "convolution_backward":
        unread = {"input": not call["output_mask"][1], "weight": not call["output_mask"][0]}
        return unread.get(argument.name, False)
    return argument.mutated and key in OVERWRITING_OPS


def _mutates(call: OperatorCall, argument: SchemaArgument) -> bool:
    """Whether a call writes the argument: the schema of a fused optimizer marks gradients as mutated, but they are only
    rescaled if `grad_scale` is set."""
    return argument.mutated and not (argument.name == "grads" and call["grad_scale"] is None)


def _indexed_elements(call: OperatorCall, name: str) -> int | None:
    """Number of elements of an argument that a call indexes; None if it uses all of them."""
    key = call.schema.key
    if GATHERED_ARGUMENTS.get(key) == name:
        return call.numel("indices") * call.shape(name)[-1] if key.startswith("embedding") else call.out_numel
    if key == "nll_loss" and name == "self":
        return call.numel("target")
    if key == "item":
        return 1
    if key in SCATTERING_OPS and name == "self" and call.schema.name.endswith("_"):
        return _scattered_elements(call)
    return None


def _scattered_elements(call: OperatorCall) -> int | None:
    """Elements of `self` that an in-place scatter indexes; None under a mask, whose count depends on the data."""
    key = call.schema.key
    if key == "index_put":
        return _index_put_elements(call)
    if key in ("index_add", "index_copy", "index_reduce"):
        return call.numel("source")
    if key == "index_fill":
        return call.numel("index") * call.numel("self") // max(1, call.shape("self")[call["dim"]])
    return call.numel("index")


def _index_put_elements(call: OperatorCall) -> int | None:
    indices = call["indices"]
    tensors = tensors_in(indices)
    if any(t.dtype in (torch.bool, torch.uint8) for t in tensors):
        return None
    points = prod(torch.broadcast_shapes(*(shape_of(t) for t in tensors)))
    shape = call.shape("self")
    free = [size for at, size in enumerate(shape) if at >= len(indices) or indices[at] is None]
    return points * prod(free)
