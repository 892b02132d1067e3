"""Launches of kernels with one `__grid_constant__` struct parameter that may hold tensor maps for TMA.

The driver is called through ctypes: a launch that is repeated with other addresses costs about 2 us of host time.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from kernelwright.core.errors import UsageError

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
TENSOR_MAP_TYPES = {"uint8": 0, "float16": 6, "float32": 7, "bfloat16": 9}
"""CUtensorMapDataType by dtype; FP8 is loaded as uint8."""
SWIZZLE_128_BYTES, L2_PROMOTION_256_BYTES = 3, 3
_CLUSTER_DIMENSION, _PROGRAMMATIC_STREAM_SERIALIZATION = 4, 6
_Dims = ctypes.c_uint64 * 5
_Box = ctypes.c_uint32 * 5


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint32),
    )


@functools.cache
def _driver() -> ctypes.PyDLL:
    """The driver, called with the GIL held: no call here waits for the device."""
    library = ctypes.PyDLL("libcuda.so.1")
    library.cuLaunchKernelEx.argtypes = (ctypes.c_void_p,) * 4
    library.cuTensorMapReplaceAddress.argtypes = (ctypes.c_void_p,) * 2
    return library


class StructParameter:
    """Memory of a struct that kernels take as their parameter, aligned for tensor maps.

    Attributes:
        content: its bytes, for `struct.pack_into`.
    """

    def __init__(self, num_bytes: int) -> None:
        self._buffer = ctypes.create_string_buffer(num_bytes + TENSOR_MAP_ALIGNMENT)
        unaligned = ctypes.addressof(self._buffer)
        self.address = -(-unaligned // TENSOR_MAP_ALIGNMENT) * TENSOR_MAP_ALIGNMENT
        self.content = (ctypes.c_char * num_bytes).from_address(self.address)
        self._replace = _driver().cuTensorMapReplaceAddress

    def encode_tensor_map(
        self,
        offset: int,
        address: int,
        dtype: str,
        sizes: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
    ) -> None:
        """Encode a tensor map with a 128-byte swizzle into the parameter.

        Args:
            offset: in the parameter, in bytes.
            address: of the tensor, a multiple of 16.
            dtype: of `TENSOR_MAP_TYPES`.
            sizes: elements in each dimension, the contiguous one first.
            strides: bytes between elements of the other dimensions, multiples of 16.
            box: elements of a tile in each dimension.
        Raises:
            UsageError: the driver refuses it.
        """
        rank = len(sizes)
        status = _driver().cuTensorMapEncodeTiled(
            ctypes.c_void_p(self.address + offset), TENSOR_MAP_TYPES[dtype], rank, ctypes.c_void_p(address),
            _Dims(*sizes), _Dims(*strides), _Box(*box), _Box(*(1,) * rank), 0, SWIZZLE_128_BYTES,
            L2_PROMOTION_256_BYTES, 0,
        )  # fmt: skip
        if status:
            raise UsageError(
                f"no tensor map of {list(sizes)} {dtype} with strides {list(strides)} and tiles {list(box)}"
            )

    def replace_address(self, offset: int, address: int) -> None:
        """Change the address of an encoded tensor map."""
        self._replace(self.address + offset, address)


class StructLaunch:
    """A launch with a fixed shape; not thread-safe, like its parameter.

    Args:
        function: handle of the kernel.
        parameter: its only parameter; the content at the time of a call counts.
        grid, cluster: blocks in the first dimension.
        threads: per block.
        shared_bytes: dynamic shared memory per block.
        use_pdl: programmatic dependent launch.
    """

    def __init__(
        self,
        function: int,
        parameter: StructParameter,
        *,
        grid: int,
        threads: int,
        shared_bytes: int = 0,
        cluster: int = 1,
        use_pdl: bool = False,
    ) -> None:
        self._parameter = parameter
        self._pointers = (ctypes.c_void_p * 1)(parameter.address)
        attributes = []
        if cluster > 1:
            attributes.append(_Attribute(_CLUSTER_DIMENSION, 0, (cluster, 1, 1)))
        if use_pdl:
            attributes.append(_Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (1,)))
        self._attributes = (_Attribute * max(1, len(attributes)))(*attributes)
        self._config = _Config(
            (grid, 1, 1), (threads, 1, 1), shared_bytes, None, ctypes.addressof(self._attributes), len(attributes)
        )
        self._arguments = (ctypes.addressof(self._config), function, ctypes.addressof(self._pointers), None)
        self._launch = _driver().cuLaunchKernelEx

    def __call__(self, stream: int) -> None:
        """Launch once on a stream, asynchronously.

        Raises:
            UsageError: the driver refuses the launch.
        """
        self._config.stream = stream
        if status := self._launch(*self._arguments):
            raise UsageError(f"launch of {self._config.grid[0]} blocks failed: {_error_text(status)}")


def _error_text(status: int) -> str:
    text = ctypes.c_char_p()
    _driver().cuGetErrorString(status, ctypes.byref(text))
    return text.value.decode() if text.value else f"error {status}"
