"""The chain between the calls of a series: the inputs of a call follow from the outputs of the call before it.

Used in both processes. The calls of a series run back to back, so their inputs are in the candidate's memory before the
first one starts. To keep it from computing them in one batch, the inputs of every call but the first are changed by a
digest of all elements that the call before it returned, and of its inputs where it writes to them: they are not known
before that call is over. The verifier repeats the chain from the outputs that it read, and compares the outputs with
the reference's on the inputs that follow: a candidate that returns early and computes later has other inputs than the
verifier.
"""

from __future__ import annotations

import ctypes
import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernelwright.core.errors import KernelwrightError
from kernelwright.toolchain.cpp import compile_shared

FLAGS = ("-O3", "-march=native", "-std=c++20", "-fPIC", "-shared")
MANTISSA_BITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}
KEPT_BITS = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 5, torch.float64: 12}
"""Leading bits of the mantissa that stay as they are: a value changes by at most one part in 2 to the power of this."""


class Change(IntEnum):
    """How the chain changes the numbers of an input: not, the low bits of floats, or in pairs of integers next to each
    other, where one takes the other's place or its value."""

    NONE = 0
    LOW_BITS = 1
    SWAP = 2
    COPY = 3


class ChainedLeaf(NamedTuple):
    """What the chain does with a leaf of the arguments.

    Attributes:
        is_output: the program writes to it, so what a call leaves there changes the inputs of the next one.
    """

    change: Change
    is_output: bool = False


class ChainedBlock(ctypes.Structure):
    """A block of inputs and its change; of floats also the bits that change, and those of exponent and mantissa."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("address", "bytes", "item_bytes", "change", "changed", "exponent", "mantissa")
    )


@functools.cache
def compiled_library() -> str:
    """Path of the library, compiled for this machine; empty where there is no compiler."""
    try:
        source = Path(__file__).with_suffix(".cpp")
        return str(compile_shared(source.read_text(encoding="utf-8"), flags=FLAGS, name=str(source)))
    except KernelwrightError:
        return ""


class ChainFunctions:
    """The functions of the library, bound when it is loaded."""

    def __init__(self, library: str) -> None:
        loaded = ctypes.CDLL(library)
        self.absorb = loaded.absorb
        self.absorb.argtypes, self.absorb.restype = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64), ctypes.c_uint64
        self.derive = loaded.derive
        self.derive.argtypes, self.derive.restype = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64), None


def describe_block(address: int, size_bytes: int, dtype: torch.dtype, change: Change) -> tuple[int, ...]:
    """The fields of the `ChainedBlock` for memory of this dtype."""
    if change != Change.LOW_BITS:
        return address, size_bytes, dtype.itemsize, change, 0, 0, 0
    mantissa_bits = MANTISSA_BITS[dtype]
    mantissa = (1 << mantissa_bits) - 1
    exponent = (1 << 8 * dtype.itemsize - 1) - 1 - mantissa
    changed = (1 << mantissa_bits - KEPT_BITS[dtype]) - 1
    return address, size_bytes, dtype.itemsize, change, changed, exponent, mantissa


def make_blocks(described: Sequence[Sequence[int]]) -> ctypes.Array[ChainedBlock]:
    """The blocks of one call for `derive`."""
    return (ChainedBlock * len(described))(*(ChainedBlock(*one) for one in described))


def change_tensors(tensors: Sequence[Tensor], changes: Sequence[Change], digest: int) -> None:
    """Change the elements of contiguous tensors in place, as the chain does after outputs of this digest."""
    pairs = [(one, change) for one, change in zip(tensors, changes, strict=True) if change]
    described = [describe_block(one.data_ptr(), one.nbytes, one.dtype, change) for one, change in pairs]
    ChainFunctions(compiled_library()).derive(make_blocks(described), len(described), digest)


class ChangedBlock(NamedTuple):
    """A block that changes before a call, by its number."""

    number: int
    dtype: torch.dtype
    change: Change


@dataclass(frozen=True)
class CallChain:
    """The chain of one series on the verifier's side.

    Attributes:
        seed: the digest before the first call.
        blocks: for each call, those that change before it.
        written: for each call, the numbers of the blocks that the program writes to.
    """

    seed: int
    blocks: list[list[ChangedBlock]]
    written: list[list[int]]

    def request(self, addresses: Sequence[Sequence[int]]) -> dict[str, Any]:
        """What the worker needs.

        Args:
            addresses: [address, bytes] of each block in the candidate's process.
        """
        described = [
            [describe_block(addresses[one.number][0], addresses[one.number][1], one.dtype, one.change) for one in each]
            for each in self.blocks
        ]
        written = [[list(addresses[number]) for number in each] for each in self.written]
        return {"seed": self.seed, "blocks": described, "written": written}

    def repeat(self, outputs: Sequence[Sequence[Tensor]], after: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Change the inputs as the worker did.

        Args:
            outputs: for each call, the elements of its outputs in order.
            after: the bytes of all blocks after the series.
            inputs: the bytes of all blocks as they were written, changed in place.
        """
        functions, digest = ChainFunctions(compiled_library()), self.seed
        for call, blocks in enumerate(self.blocks):
            if call:
                for one in (*outputs[call - 1], *(after[number] for number in self.written[call - 1])):
                    digest = functions.absorb(digest, one.data_ptr(), one.nbytes)
                described = [
                    describe_block(inputs[one.number].data_ptr(), inputs[one.number].numel(), one.dtype, one.change)
                    for one in blocks
                ]
                functions.derive(make_blocks(described), len(described), digest)


def make_chain(leaves: Sequence[dict[str, Any]], chained: Sequence[ChainedLeaf], calls: int) -> CallChain | None:
    """The chain of a series, or None without one. Only blocks that no other call has and that hold numbers of one kind
    change.

    Args:
        leaves: of all calls, from `extract_storages`.
        chained: for the leaves of one call.
    """
    if calls < 2 or not any(one.change for one in chained):
        return None
    calls_of: dict[int, set[int]] = {}
    kinds_of: dict[int, set[tuple[str, ChainedLeaf]]] = {}
    for at, leaf in enumerate(leaves):
        if "block" in leaf:
            calls_of.setdefault(leaf["block"], set()).add(at // len(chained))
            kinds_of.setdefault(leaf["block"], set()).add((leaf["dtype"], chained[at % len(chained)]))
    blocks: list[list[ChangedBlock]] = [[] for _ in range(calls)]
    written: list[list[int]] = [[] for _ in range(calls)]
    for block, kinds in kinds_of.items():
        (dtype, leaf), *others = kinds
        call, *other_calls = calls_of[block]
        if leaf.change and not others and not other_calls:
            blocks[call].append(ChangedBlock(block, getattr(torch, dtype), leaf.change))
        if not other_calls and any(one.is_output for _, one in kinds):
            written[call].append(block)
    return CallChain(random.SystemRandom().getrandbits(64), blocks, written)
