"""Which bytes a call must read and write: what its schema says, and the operators for which that is not the truth."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch

from kernelwright.work.calls import Argument, Call, shape_of, tensors_in
from kernelwright.work.regions import Region
from kernelwright.work.storages import Storage, Storages, region
from kernelwright.work.vector import FILLS

OVERWRITES = FILLS | {
    "copy", "normal", "uniform", "bernoulli", "random", "exponential", "log_normal", "cauchy", "geometric",
    "foreach_copy", "foreach_zero",
}  # fmt: skip
"""Calls whose in-place form does not look at what was there."""

SHAPE_ONLY = {
    "zeros_like": "self", "ones_like": "self", "full_like": "self", "new_zeros": "self", "new_ones": "self",
    "new_full": "self", "rand_like": "self", "randn_like": "self", "randint_like": "self",
    "nll_loss_backward": "self", "max_pool2d_backward": "self", "layer_norm_backward": "bias",
}  # fmt: skip
"""Arguments of which only the shape is used."""

GATHERED = {
    "embedding": "weight", "index": "self", "index_select": "self", "gather": "self", "take": "self",
    "masked_select": "self", "embedding_bag": "weight",
}  # fmt: skip
"""Arguments of which only the elements that come back are read."""

ROW_WRITERS = {
    "index_put", "put", "index_add", "index_copy", "index_fill", "index_reduce", "scatter", "scatter_add",
    "scatter_reduce",
}  # fmt: skip
"""In place, these read and write only the elements that they are pointed at."""


SHARED_ROW_BYTES = 48 * 1024
"""What a block may have of shared memory without asking for more."""


class Access(NamedTuple):
    """One tensor's share in a call: which bytes of which storage, and under which argument it came."""

    storage: Storage
    region: Region
    argument: str = ""
    item_bytes: int = 1


def reads_of(call: Call, storages: Storages) -> list[Access]:
    """What a call may read; to be asked before it runs, since it may change strides and sizes."""
    found = []
    for argument in call.signature.arguments or _unnamed(call):
        for tensor in call.tensors(argument.name) if argument.tensors else ():
            storage, new = storages.find(tensor, fresh=False)
            storage.lifted |= new and call.signature.key == "lift_fresh"
            if not _skips(call, argument):
                found.append(Access(storage, region(tensor, storage), argument.name, tensor.element_size()))
    return found


def passes_over(call: Call) -> int:
    """How often torch's own kernel reads the input from memory: a fact of its implementation, not of the mathematics.

    Softmax and log-softmax on CUDA read rows that a block's shared memory does not hold three times (maximum, sum,
    result). Measured on an H200: 3.97 ms for 8192 x 128256 float32, which is 16.8 GB at 4.24 TB/s.
    """
    if call.signature.key not in ("softmax", "log_softmax") or not call.inputs:
        return 1
    values, dim = call.inputs[0], call["dim"]
    if values.device.type != "cuda" or not isinstance(dim, int) or values.dim() == 0:
        return 1
    return 3 if values.shape[dim] * values.element_size() > SHARED_ROW_BYTES else 1


def writes_of(call: Call, storages: Storages) -> tuple[list[Access], int]:
    """What a call wrote, in place or into new storages, and the bytes of the new ones; to be asked afterwards."""
    found = []
    for argument in call.signature.arguments:
        for tensor in call.tensors(argument.name) if _mutates(call, argument) else ():
            storage, _ = storages.find(tensor, fresh=False)
            found.append(Access(storage, region(tensor, storage), argument.name, tensor.element_size()))
    fresh: dict[int, Storage] = {}
    for tensor in call.outputs:
        storage, new = storages.find(tensor, fresh=True)
        if new:
            fresh[storage.number] = storage
        if storage.number in fresh:
            found.append(Access(storage, region(tensor, storage)))
    return found, sum(storage.bytes for storage in fresh.values())


def narrowed(call: Call, access: Access) -> Access:
    """The access without the elements of a table that a call was not pointed at."""
    if (picked := _picked(call, access.argument)) is None:
        return access
    return access._replace(region=access.region.picked(picked * access.item_bytes))


def _unnamed(call: Call) -> list[Argument]:
    return [Argument(name, False, False) for name in call.values]


def _skips(call: Call, argument: Argument) -> bool:
    key = call.signature.key
    if argument.out or SHAPE_ONLY.get(key) == argument.name:
        return True
    if key == "convolution_backward":
        unread = {"input": not call["output_mask"][1], "weight": not call["output_mask"][0]}
        return unread.get(argument.name, False)
    return argument.mutated and key in OVERWRITES


def _mutates(call: Call, argument: Argument) -> bool:
    """A fused optimizer may rescale gradients in place, and says so in its schema, but only does it when asked to."""
    return argument.mutated and not (argument.name == "grads" and call["grad_scale"] is None)


def _picked(call: Call, name: str) -> int | None:
    """How many elements of an argument a call touches, where that is not all of them."""
    key = call.signature.key
    if GATHERED.get(key) == name:
        return call.numel("indices") * call.shape(name)[-1] if key.startswith("embedding") else call.out_numel
    if key == "nll_loss" and name == "self":
        return call.numel("target")
    if key == "item":
        return 1
    if key in ROW_WRITERS and name == "self" and call.signature.name.endswith("_"):
        return _pointed_at(call)
    return None


def _pointed_at(call: Call) -> int | None:
    """Elements of `self` that an in-place scatter reaches; None under a mask, whose count only the data knows."""
    key = call.signature.key
    if key == "index_put":
        return _indexed(call)
    if key in ("index_add", "index_copy", "index_reduce"):
        return call.numel("source")
    if key == "index_fill":
        return call.numel("index") * call.numel("self") // max(1, call.shape("self")[call["dim"]])
    return call.numel("index")


def _indexed(call: Call) -> int | None:
    indices = call["indices"]
    given = tensors_in(indices)
    if any(t.dtype in (torch.bool, torch.uint8) for t in given):
        return None
    points = prod(torch.broadcast_shapes(*(shape_of(t) for t in given)))
    shape = call.shape("self")
    free = [size for at, size in enumerate(shape) if at >= len(indices) or indices[at] is None]
    return points * prod(free)
