"""Launches of emulated kernels with one struct parameter, with the interface of `toolchain.cuda.struct_launch`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from kernelwright.core.errors import UsageError
from kernelwright.core.units import DTYPE_BYTES
from kernelwright.toolchain.cuda.driver import (
    MAP_PITCH_BYTES,
    TENSOR_MAP_ALIGNMENT,
    TENSOR_MAP_BYTES,
    align_address,
)
from kernelwright.toolchain.emulator.launcher import EmulatedKernel
from kernelwright.toolchain.emulator.tensor_map import pack_tensor_map


class EmulatedStructParameter:
    """See `StructParameter`."""

    def __init__(self, num_bytes: int) -> None:
        self._buffer = ctypes.create_string_buffer(num_bytes + TENSOR_MAP_ALIGNMENT)
        self.address = align_address(ctypes.addressof(self._buffer))
        self.content = (ctypes.c_char * num_bytes).from_address(self.address)

    def encode_tensor_map(
        self,
        offset: int,
        address: int,
        dtype: str,
        sizes: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
    ) -> None:
        """Encode a tensor map with a 128-byte swizzle at an offset in bytes."""
        packed = pack_tensor_map(address, DTYPE_BYTES[dtype], sizes, strides, box)
        self.content[offset : offset + TENSOR_MAP_BYTES] = packed

    def replace_address(self, offset: int, address: int) -> None:
        """Change the address of an encoded tensor map.

        Raises:
            UsageError: it is not a multiple of 16.
        """
        if address % MAP_PITCH_BYTES:
            raise UsageError(f"no tensor map at address {address:#x}")
        struct.pack_into("<Q", self.content, offset, address)


class EmulatedStructLaunch:
    """See `StructLaunch`; launches run one after the other."""

    def __init__(
        self,
        kernel: EmulatedKernel,
        parameter: EmulatedStructParameter,
        *,
        grid: int,
        threads: int,
        shared_bytes: int = 0,
        cluster: int = 1,
    ) -> None:
        self._kernel, self._parameter = kernel, parameter
        self._sizes = grid, threads, shared_bytes, cluster

    def __call__(self, stream: int) -> None:
        """Run to the end."""
        grid, threads, shared_bytes, cluster = self._sizes
        self._kernel(grid, threads, [bytes(self._parameter.content)], shared_bytes, cluster)
