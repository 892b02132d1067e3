"""The chain between the calls of a series: the inputs of a call follow from the outputs of the call before it.

Used in both processes. The calls of a series run back to back, so their inputs are in the candidate's memory before the
first one starts. To keep it from computing them in one batch, the low bits of the floating inputs of every call but the
first are changed by a digest of all bytes that the call before it returned: its inputs are not known before that call
is over. The verifier repeats the chain from the outputs that it read, and compares the outputs with the reference's on
the inputs that follow: a candidate that returns early and computes later has other inputs than the verifier.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelwright.core.errors import KernelwrightError
from kernelwright.toolchain.cpp import compile_shared

FLAGS = ("-O3", "-march=native", "-std=c++20", "-fPIC", "-shared")
MANTISSA_BITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}
KEPT_BITS = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 5, torch.float64: 12}
"""Leading bits of the mantissa that stay as they are: a value changes by at most one part in 2 to the power of this."""
WORDS_PER_BLOCK = 6


class ChainedBlock(ctypes.Structure):
    """A block of floating inputs, with the bits of each number that change, and those of its exponent and mantissa."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("address", "bytes", "item_bytes", "changed", "exponent", "mantissa")
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


def describe_block(address: int, size_bytes: int, dtype: torch.dtype) -> tuple[int, ...]:
    """The fields of the `ChainedBlock` for memory of this dtype."""
    mantissa_bits = MANTISSA_BITS[dtype]
    mantissa = (1 << mantissa_bits) - 1
    exponent = (1 << 8 * dtype.itemsize - 1) - 1 - mantissa
    changed = (1 << mantissa_bits - KEPT_BITS[dtype]) - 1
    return address, size_bytes, dtype.itemsize, changed, exponent, mantissa


def make_blocks(described: Sequence[Sequence[int]]) -> ctypes.Array[ChainedBlock]:
    """The blocks of one call for `derive`."""
    return (ChainedBlock * len(described))(*(ChainedBlock(*one) for one in described))


@dataclass(frozen=True)
class CallChain:
    """The chain of one series on the verifier's side.

    Attributes:
        seed: the digest before the first call.
        blocks: for each call, the numbers of its blocks that change, with their dtypes.
    """

    seed: int
    blocks: list[list[tuple[int, torch.dtype]]]

    def request(self, addresses: Sequence[Sequence[int]]) -> dict[str, Any]:
        """What the worker needs.

        Args:
            addresses: [address, bytes] of each block in the candidate's process.
        """
        described = [
            [describe_block(addresses[at][0], addresses[at][1], dtype) for at, dtype in one] for one in self.blocks
        ]
        return {"seed": self.seed, "blocks": described}

    def repeat(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> None:
        """Change the inputs as the worker did.

        Args:
            outputs: for each call, the bytes of its outputs in order.
            inputs: the bytes of all blocks as they were written, changed in place.
        """
        functions, digest = ChainFunctions(compiled_library()), self.seed
        for call, blocks in enumerate(self.blocks):
            if call:
                for one in outputs[call - 1]:
                    digest = functions.absorb(digest, one.data_ptr(), one.numel())
                described = [describe_block(inputs[at].data_ptr(), inputs[at].numel(), dtype) for at, dtype in blocks]
                functions.derive(make_blocks(described), len(described), digest)
