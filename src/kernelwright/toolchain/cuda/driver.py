"""The driver's own interface, called through ctypes: tensor maps for TMA, and launches that repeat at about 2 us."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from kernelwright.core.errors import UsageError
from kernelwright.core.units import DTYPE_BYTES

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
TENSOR_MAP_TYPES = {"uint8": 0, "float16": 6, "bfloat16": 9, "float32": 7}
"""CUtensorMapDataType by dtype; FP8 is loaded as uint8."""
SWIZZLE_MODES = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by the bytes of its pattern."""
MAX_MAP_RANK, MAX_MAP_SIZE, MAX_BOX = 5, 2**32, 256
"""Dimensions of a tensor map, and elements of the tensor and of the box along each."""
MAP_PITCH_BYTES, MAP_PITCH_END_BYTES = 16, 2**40
"""Addresses and pitches of a tensor map are multiples of the first; pitches are below the second."""
MAX_CACHED_MAPS = 256
_L2_PROMOTION_256_BYTES = 3
_CLUSTER_DIMENSION, _COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION = 4, 2, 6
_Dims = ctypes.c_uint64 * MAX_MAP_RANK
_Box = ctypes.c_uint32 * MAX_MAP_RANK


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
def load_driver() -> ctypes.PyDLL:
    """The driver, called with the GIL held: no call here waits for the device."""
    library = ctypes.PyDLL("libcuda.so.1")
    library.cuLaunchKernelEx.argtypes = (ctypes.c_void_p,) * 4
    library.cuTensorMapReplaceAddress.argtypes = (ctypes.c_void_p,) * 2
    return library


def error_text(status: int) -> str:
    """The driver's error string."""
    text = ctypes.c_char_p()
    load_driver().cuGetErrorString(status, ctypes.byref(text))
    return text.value.decode() if text.value else f"error {status}"


def encode_tensor_map(
    destination: int,
    address: int,
    dtype: str,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 128,
) -> None:
    """Encode a tensor map of 128 bytes.

    Args:
        destination: in host memory, a multiple of 64.
        address: of the tensor, a multiple of 16.
        dtype: of `TENSOR_MAP_TYPES`.
        sizes: elements in each dimension, the contiguous one first.
        strides: bytes between elements of the other dimensions, multiples of 16.
        box: elements of a tile in each dimension.
        swizzle: bytes of the pattern in shared memory, of `SWIZZLE_MODES`.
    Raises:
        UsageError: the driver refuses it.
    """
    rank = len(sizes)
    status = load_driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(destination), TENSOR_MAP_TYPES[dtype], rank, ctypes.c_void_p(address), _Dims(*sizes),
        _Dims(*strides), _Box(*box), _Box(*(1,) * rank), 0, SWIZZLE_MODES[swizzle], _L2_PROMOTION_256_BYTES, 0,
    )  # fmt: skip
    if status:
        raise UsageError(
            f"no tensor map of {list(sizes)} {dtype} at {address:#x} with strides {list(strides)}, tiles {list(box)} "
            f"and a swizzle of {swizzle} bytes: {error_text(status)}"
        )


class TensorMap:
    """A tensor map in host memory, to be passed by value to a `const __grid_constant__ kw::TensorMap` parameter.

    Attributes:
        address: of its 128 bytes, which are zeros until they are encoded.
    """

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT)
        self.address = align_address(ctypes.addressof(self._buffer))


@functools.lru_cache(maxsize=MAX_CACHED_MAPS)
def tensor_map(
    address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], swizzle: int
) -> TensorMap:
    """The map of a tensor. That of an empty one is all zeros: nothing can be loaded through it.

    Args:
        address: of the tensor.
        shape, strides: as torch has them, in elements, the contiguous dimension last.
        box: elements of a tile, in the same order.
        swizzle: bytes of the pattern in shared memory; 0 for none.
    Raises:
        UsageError: the driver refuses it.
    """
    encoded = TensorMap()
    if 0 not in shape:
        pitches = map_pitches(shape, strides, DTYPE_BYTES[dtype]) or [0]
        encode_tensor_map(encoded.address, address, dtype, shape[::-1], pitches, box[::-1], swizzle)
    return encoded


def map_pitches(shape: tuple[int, ...], strides: tuple[int, ...], element_bytes: int) -> list[int]:
    """Bytes between elements of each dimension of a tensor but the contiguous one, from the inner to the outer."""
    sizes, pitches = shape[::-1], [element_bytes * stride for stride in strides[-2::-1]]
    least = sizes[0] * element_bytes
    for i, size in enumerate(sizes[1:]):
        if size == 1:  # any stride is valid in torch, and none is used
            pitches[i] = -(-least // MAP_PITCH_BYTES) * MAP_PITCH_BYTES
        least = pitches[i] * size
    return pitches


def align_address(address: int) -> int:
    """The next address that can hold a tensor map."""
    return -(-address // TENSOR_MAP_ALIGNMENT) * TENSOR_MAP_ALIGNMENT


class DriverLaunch:
    """A launch with a fixed shape; not thread-safe, like the memory of its parameters.

    Args:
        function: handle of the kernel.
        parameters: array of the addresses of its parameters; their content at the time of a call counts.
        grid, block, cluster: in three dimensions, counted in blocks, threads and blocks.
        shared_bytes: dynamic shared memory per block.
        use_pdl: programmatic dependent launch.
    """

    def __init__(
        self,
        function: int,
        parameters: ctypes.Array[ctypes.c_void_p],
        *,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int = 0,
        cluster: tuple[int, ...] = (1, 1, 1),
        cooperative: bool = False,
        use_pdl: bool = False,
    ) -> None:
        self._parameters = parameters
        attributes = []
        if cluster != (1, 1, 1):
            attributes.append(_Attribute(_CLUSTER_DIMENSION, 0, cluster))
        if cooperative:
            attributes.append(_Attribute(_COOPERATIVE, 0, (1,)))
        if use_pdl:
            attributes.append(_Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (1,)))
        self._attributes = (_Attribute * max(1, len(attributes)))(*attributes)
        self._config = _Config(grid, block, shared_bytes, None, ctypes.addressof(self._attributes), len(attributes))
        self._arguments = (ctypes.addressof(self._config), function, ctypes.addressof(parameters), None)
        self._launch = load_driver().cuLaunchKernelEx

    def __call__(self, stream: int) -> None:
        """Launch once on a stream, asynchronously.

        Raises:
            UsageError: the driver refuses the launch.
        """
        self._config.stream = stream
        if status := self._launch(*self._arguments):
            raise UsageError(f"launch of {list(self._config.grid)} blocks failed: {error_text(status)}")
