"""Launches of kernels with one `__grid_constant__` struct parameter that may hold tensor maps for TMA."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from kernelwright.core.errors import UsageError
from kernelwright.toolchain.cuda.driver import (
    TENSOR_MAP_ALIGNMENT,
    TENSOR_MAP_BYTES,
    DriverLaunch,
    align_address,
    encode_tensor_map,
    error_text,
    load_driver,
)
from kernelwright.toolchain.cuda.launcher import CudaKernel

__all__ = ["TENSOR_MAP_ALIGNMENT", "TENSOR_MAP_BYTES", "StructLaunch", "StructParameter"]


class StructParameter:
    """Memory of a struct that kernels take as their parameter, aligned for tensor maps.

    Attributes:
        content: its bytes, for `struct.pack_into`.
    """

    def __init__(self, num_bytes: int) -> None:
        self._buffer = ctypes.create_string_buffer(num_bytes + TENSOR_MAP_ALIGNMENT)
        self.address = align_address(ctypes.addressof(self._buffer))
        self.content = (ctypes.c_char * num_bytes).from_address(self.address)
        self._replace = load_driver().cuTensorMapReplaceAddress

    def encode_tensor_map(
        self,
        offset: int,
        address: int,
        dtype: str,
        sizes: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
    ) -> None:
        """Encode a tensor map with a 128-byte swizzle at an offset in bytes; see `driver.encode_tensor_map`."""
        encode_tensor_map(self.address + offset, address, dtype, sizes, strides, box)

    def replace_address(self, offset: int, address: int) -> None:
        """Change the address of an encoded tensor map.

        Raises:
            UsageError: the driver refuses it, for one that is not a multiple of 16.
        """
        if status := self._replace(self.address + offset, address):
            raise UsageError(f"no tensor map at address {address:#x}: {error_text(status)}")


class StructLaunch(DriverLaunch):
    """A launch with a fixed shape; not thread-safe, like its parameter.

    Args:
        kernel: the kernel.
        parameter: its only parameter; the content at the time of a call counts.
        grid, cluster: blocks in the first dimension.
        threads: per block.
        shared_bytes: dynamic shared memory per block.
        use_pdl: programmatic dependent launch.
    """

    def __init__(
        self,
        kernel: CudaKernel,
        parameter: StructParameter,
        *,
        grid: int,
        threads: int,
        shared_bytes: int = 0,
        cluster: int = 1,
        use_pdl: bool = False,
    ) -> None:
        self._parameter = parameter
        super().__init__(
            kernel.handle,
            (ctypes.c_void_p * 1)(parameter.address),
            grid=(grid, 1, 1),
            block=(threads, 1, 1),
            shared_bytes=shared_bytes,
            cluster=(cluster, 1, 1),
            use_pdl=use_pdl,
        )
