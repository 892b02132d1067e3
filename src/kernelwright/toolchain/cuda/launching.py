"""A kernel of some machine code, launched from torch with as little in between as can be.

Arguments lie in one block of memory that is written anew for every launch; the driver copies it before it returns.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.toolchain.cuda.compiling import NO_DEFINES, Cubin, compile_cubin, cuda_core

Sizes = int | Sequence[int]
STATIC_LIMIT = 48 * 2**10
"""Dynamic shared memory beyond this has to be asked for once for each kernel."""
FORMATS = {
    **{(float, size): form for size, form in ((2, "e"), (4, "f"), (8, "d"))},
    **{(int, size): form for size, form in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))},
    **{(bool, size): form for size, form in ((1, "?"), (4, "i"), (8, "q"))},
}
"""How a number of Python's is written (the `struct` module's letter), by the size of the parameter."""


class CudaKernel:
    """A kernel, launched on torch's current stream, under CUDA graphs too.

    Args:
        source: CUDA C++, or what `compile_cubin` made of it.
        name: the kernel's `extern "C"` name.
        arch: of the current device when left out; 9.0 is sm_90a.
    Raises:
        DeviceError: no CUDA device here, or machine code of another architecture.
        UsageError: no kernel of that name.
    """

    def __init__(
        self, source: str | Cubin, name: str, arch: str | None = None, *, defines: Mapping[str, str] = NO_DEFINES
    ) -> None:
        if not torch.cuda.is_available():  # asked first: a kernel that is wanted without a driver hangs the second time
            raise DeviceError("no CUDA device here", next="compile_cubin compiles without one")
        torch.cuda.init()
        cubin = source if isinstance(source, Cubin) else compile_cubin(source, arch or arch_here(), defines=defines)
        core = cuda_core()
        core.Device(torch.cuda.current_device()).set_current()
        self.name, self.cubin = name, cubin
        try:
            self._kernel = core.ObjectCode.from_cubin(cubin.code).get_kernel(name)
        except Exception as fault:
            raise _unloadable(cubin, name, fault) from fault
        self._function = _driver().CUfunction(int(self._kernel.handle))
        self._shared_bytes = 0
        self._parameters = [(part.offset, part.size) for part in self._kernel.arguments_info]
        self._packs: dict[tuple[type, ...], Callable[..., None]] = {}
        self._block = ctypes.create_string_buffer(max((sum(part) for part in self._parameters), default=1))
        base = ctypes.addressof(self._block)
        self._pointers = (ctypes.c_void_p * max(len(self._parameters), 1))(*(base + at for at, _ in self._parameters))
        self._given = ctypes.addressof(self._pointers)

    def __call__(
        self,
        grid: Sizes,
        block: Sizes,
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        *,
        cluster: Sizes = 1,
        cooperative: bool = False,
    ) -> None:
        """One launch.

        Args:
            grid: blocks, along one to three dimensions.
            block: threads of a block, likewise.
            arguments: in the order of the kernel's: tensors on the device for pointers, Python's numbers for numbers
                (a float where the kernel takes a float: of a parameter only the size is known).
            shared_bytes: dynamic shared memory of a block.
            cluster: blocks of a cluster, which have each other's shared memory.
            cooperative: all blocks are on the device at once and can wait for each other.
        Raises:
            UsageError: another number of arguments, one that does not fit its parameter, or more than a block may have.
        """
        if shared_bytes > max(self._shared_bytes, STATIC_LIMIT):
            self._ask_for(shared_bytes)
        pack = self._packs.get(tuple(map(type, arguments))) or self._pack_of(arguments)
        raw = [one if not isinstance(one, torch.Tensor) else _pointer(one) for one in arguments]
        try:
            pack(self._block, 0, *raw)
        except struct.error as fault:
            raise UsageError(f"an argument of {self.name} does not fit its parameter: {fault}") from None
        launch = _launch_plain if cluster == 1 and not cooperative else _launch_extended
        stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
        launch(self._function, _three(grid), _three(block), shared_bytes, stream, self._given, cluster, cooperative)

    def _pack_of(self, arguments: Sequence[Any]) -> Callable[..., None]:
        """What writes arguments of these types, each at its parameter's place."""
        if len(arguments) != len(self._parameters):
            raise UsageError(f"{self.name} takes {len(self._parameters)} arguments, not {len(arguments)}")
        form, end = "=", 0
        for at, (argument, (offset, size)) in enumerate(zip(arguments, self._parameters, strict=True)):
            letter = "Q" if isinstance(argument, torch.Tensor) and size == 8 else FORMATS.get((type(argument), size))
            if letter is None:
                raise UsageError(f"argument {at} of {self.name} is {argument!r:.80}, its parameter has {size} bytes")
            form += f"{offset - end}x{letter}"
            end = offset + size
        pack = struct.Struct(form).pack_into
        self._packs[tuple(map(type, arguments))] = pack
        return pack

    def _ask_for(self, shared_bytes: int) -> None:
        driver = _driver()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        device = driver.CUdevice(torch.cuda.current_device())
        kernel = driver.CUkernel(int(self._function))
        said = driver.cuKernelSetAttribute(attribute, shared_bytes, kernel, device)[0]
        _hold(said, f"{self.name} with {shared_bytes:,} bytes of shared memory")
        self._shared_bytes = shared_bytes


def arch_here() -> str:
    """The architecture of the current device, with what only it has: sm_90a for 9.0."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' * (major >= 9)}"


def _pointer(tensor: torch.Tensor) -> int:
    if not tensor.is_cuda:
        raise UsageError(f"a tensor is on {tensor.device}, the kernel runs on CUDA")
    return tensor.data_ptr()


def _three(sizes: Sizes) -> tuple[int, int, int]:
    if isinstance(sizes, int):
        return sizes, 1, 1
    first, second, third = (*sizes, 1, 1)[:3]
    return first, second, third


Launch = Callable[..., None]


def _launch_plain(function: Any, grid: Any, block: Any, shared_bytes: int, stream: int, given: int, *_: Any) -> None:
    said = _driver().cuLaunchKernel(function, *grid, *block, shared_bytes, stream, given, 0)[0]
    if said:
        _hold(said, f"a launch of {grid} blocks of {block} threads")


def _launch_extended(
    function: Any,
    grid: Any,
    block: Any,
    shared_bytes: int,
    stream: int,
    given: int,
    cluster: Sizes,
    cooperative: bool,
) -> None:
    driver = _driver()
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes, config.hStream = shared_bytes, driver.CUstream(stream)
    attributes = []
    if cluster != 1:
        one = driver.CUlaunchAttribute()
        one.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        one.value.clusterDim.x, one.value.clusterDim.y, one.value.clusterDim.z = _three(cluster)
        attributes.append(one)
    if cooperative:
        one = driver.CUlaunchAttribute()
        one.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        one.value.cooperative = 1
        attributes.append(one)
    config.attrs, config.numAttrs = attributes, len(attributes)
    said = driver.cuLaunchKernelEx(config, function, given, 0)[0]
    _hold(said, f"a launch of {grid} blocks of {block} threads in clusters of {cluster}")


@functools.cache
def _driver() -> Any:
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    return driver


def _hold(said: Any, what: str) -> None:
    """Raises what the driver refused, in its words."""
    if not int(said):
        return
    text = _driver().cuGetErrorString(said)[1]
    reason = text.decode() if isinstance(text, bytes) else str(said)
    raise UsageError(f"the driver refused {what}: {reason}", next="fewer threads, less shared memory, or another grid")


def _unloadable(cubin: Cubin, name: str, fault: Exception) -> Exception:
    said = str(fault)
    if "NO_BINARY_FOR_GPU" in said or "INVALID_SOURCE" in said or "INVALID_IMAGE" in said:
        here = arch_here()
        return DeviceError(f"machine code for {cubin.arch} does not run here ({here})", next=f"compile it for {here}")
    return UsageError(f"no kernel {name!r} in this machine code: {said[:200]}", next='declare it extern "C" __global__')
