"""Tensor maps for the emulator's TMA, with the driver's restrictions."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kernelwright.core.errors import UsageError

BYTES = 128
_FIELDS = struct.Struct("<3Q8I")
"""`TensorMapFields` of cp_async_bulk_tensor.cuh."""
_RANKS, _MULTIPLE, _MAX_BOX, _SWIZZLES = (2, 3), 16, 256, (0, 32, 64, 128)


def pack_tensor_map(
    address: int, element_bytes: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int = 128
) -> bytes:
    """Encode a tensor map of 128 bytes; arguments as for `toolchain.cuda.driver.encode_tensor_map`.

    Raises:
        UsageError: TMA cannot address the tensor or the tile.
    """
    rank, inner_bytes = len(sizes), box[0] * element_bytes
    reasons = (
        (rank not in _RANKS, f"the emulator has maps of {_RANKS} dimensions"),
        (address % _MULTIPLE != 0, f"its address is not a multiple of {_MULTIPLE}"),
        (any(one % _MULTIPLE for one in strides), f"strides are multiples of {_MULTIPLE} bytes"),
        (min(sizes) < 1, "sizes are at least 1"),
        (not all(1 <= one <= _MAX_BOX for one in box), f"a tile has 1 to {_MAX_BOX} elements in each dimension"),
        (inner_bytes % _MULTIPLE != 0, f"rows of a tile are multiples of {_MULTIPLE} bytes"),
        (swizzle not in _SWIZZLES, f"swizzles have {_SWIZZLES} bytes"),
        (swizzle > 0 and inner_bytes > swizzle, f"a tile has rows of {inner_bytes} bytes, more than its swizzle"),
    )
    if found := [reason for is_wrong, reason in reasons if is_wrong]:
        raise UsageError(f"no tensor map of {list(sizes)} with tiles {list(box)}: {found[0]}")
    missing = 3 - rank
    outer = strides[-1] * sizes[-1]
    packed = _FIELDS.pack(
        address, *strides, *(outer,) * missing, *sizes, *(1,) * missing, *box, *(1,) * missing, element_bytes, swizzle
    )
    return packed.ljust(BYTES, b"\0")
