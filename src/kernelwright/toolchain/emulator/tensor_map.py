"""Tensor maps for the emulator's TMA, with the driver's restrictions."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kernelwright.core.errors import UsageError
from kernelwright.core.units import DTYPE_BYTES
from kernelwright.toolchain.cuda.driver import MAP_PITCH_BYTES, MAX_BOX, SWIZZLE_MODES, TENSOR_MAP_BYTES, map_pitches

_FIELDS = struct.Struct("<3Q9I")
"""`TensorMapFields` of cp_async_bulk_tensor.cuh."""
MAX_RANK = 3


def pack_tensor_map(
    address: int,
    element_bytes: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 128,
) -> bytes:
    """Encode a tensor map of 128 bytes; arguments as for `toolchain.cuda.driver.encode_tensor_map`.

    Raises:
        UsageError: TMA cannot address the tensor or the tile.
    """
    rank, inner_bytes = len(sizes), box[0] * element_bytes
    reasons = (
        (rank > MAX_RANK, f"the emulator has maps of at most {MAX_RANK} dimensions"),
        (address % MAP_PITCH_BYTES != 0, f"its address is not a multiple of {MAP_PITCH_BYTES}"),
        (any(one % MAP_PITCH_BYTES for one in strides), f"strides are multiples of {MAP_PITCH_BYTES} bytes"),
        (min(sizes) < 1, "sizes are at least 1"),
        (not all(1 <= one <= MAX_BOX for one in box), f"a tile has 1 to {MAX_BOX} elements in each dimension"),
        (inner_bytes % MAP_PITCH_BYTES != 0, f"rows of a tile are multiples of {MAP_PITCH_BYTES} bytes"),
        (swizzle not in SWIZZLE_MODES, f"swizzles have {tuple(SWIZZLE_MODES)} bytes"),
        (swizzle > 0 and inner_bytes > swizzle, f"a tile has rows of {inner_bytes} bytes, more than its swizzle"),
    )
    if found := [reason for is_wrong, reason in reasons if is_wrong]:
        raise UsageError(f"no tensor map of {list(sizes)} with tiles {list(box)}: {found[0]}")
    ones = (1,) * (MAX_RANK - rank)
    packed = _FIELDS.pack(
        address, *strides, *(0 for _ in ones), *sizes, *ones, *box, *ones, element_bytes, swizzle, rank
    )
    return packed.ljust(TENSOR_MAP_BYTES, b"\0")


def emulated_tensor_map(
    address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], swizzle: int
) -> bytes:
    """The map of a tensor; arguments as for `toolchain.cuda.driver.tensor_map`."""
    if 0 in shape:
        return bytes(TENSOR_MAP_BYTES)
    pitches = map_pitches(shape, strides, DTYPE_BYTES[dtype])
    return pack_tensor_map(address, DTYPE_BYTES[dtype], shape[::-1], pitches, box[::-1], swizzle)
