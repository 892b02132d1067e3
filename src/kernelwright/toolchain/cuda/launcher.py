"""Low-overhead launches of CUDA kernels on torch's stream: launch configurations and argument conversion are cached."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.toolchain.cuda.compiler import NO_DEFINES, Cubin, compile_cubin, import_cuda_core
from kernelwright.toolchain.cuda.driver import TENSOR_MAP_BYTES, DriverLaunch, TensorMap

Dim3 = int | tuple[int, ...]
DEFAULT_DYNAMIC_SMEM_BYTES = 48 * 2**10
"""More dynamic shared memory than this needs an opt-in, once per kernel (cuKernelSetAttribute)."""
MAX_CACHED_CONFIGS = 256
SCALAR_TYPES: dict[tuple[type, int], type[np.generic]] = {
    **{(float, size): number for size, number in ((2, np.float16), (4, np.float32), (8, np.float64))},
    **{(int, size): number for size, number in ((1, np.int8), (2, np.int16), (4, np.int32), (8, np.int64))},
    **{(bool, size): number for size, number in ((1, np.bool_), (4, np.int32), (8, np.int64))},
}
"""NumPy type in which a Python number is passed, by the size of the kernel parameter in bytes."""
_SLOT_BYTES = 8


class CudaKernel:
    """A kernel launched on torch's current stream, safe under CUDA graph capture.

    Args:
        source: CUDA C++, or a `Cubin` from `compile_cubin`.
        name: the kernel's `extern "C"` name.
        arch: default: that of the current device, sm_90a for compute capability 9.0.
    Raises:
        DeviceError: no CUDA device, or machine code for another architecture.
        UsageError: no kernel of that name.
    """

    def __init__(
        self, source: str | Cubin, name: str, arch: str | None = None, *, defines: Mapping[str, str] = NO_DEFINES
    ) -> None:
        if not torch.cuda.is_available():  # first: without a driver, the second attempt to load a kernel hangs
            raise DeviceError("no CUDA device here", next="use compile_cubin, which needs no GPU")
        torch.cuda.init()
        cubin = source if isinstance(source, Cubin) else compile_cubin(source, arch or current_arch(), defines=defines)
        core = import_cuda_core()
        core.Device(torch.cuda.current_device()).set_current()
        self.name, self.cubin = name, cubin
        try:
            self._kernel = core.ObjectCode.from_cubin(cubin.code).get_kernel(name)
        except Exception as fault:
            raise _load_error(cubin, name, fault) from fault
        self._shared_bytes = DEFAULT_DYNAMIC_SMEM_BYTES
        self._parameter_bytes = [parameter.size for parameter in self._kernel.arguments_info]
        self._launch = core.launch
        self._configs: dict[Any, Any] = {}
        self._map_launches: dict[Any, _MapLaunch] = {}
        self._takes_maps = TENSOR_MAP_BYTES in self._parameter_bytes
        self._marshallers: dict[tuple[type, ...], Callable[..., tuple[Any, ...]]] = {}

    def __call__(
        self,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        *,
        cluster: Dim3 = 1,
        cooperative: bool = False,
        use_pdl: bool = False,
    ) -> None:
        """Launch the kernel once, asynchronously.

        Args:
            grid: blocks, in one to three dimensions.
            block: threads per block, in one to three dimensions.
            arguments: in the order of the kernel's parameters: CUDA tensors for pointers, Python numbers for scalars (a
                float where the kernel takes a float: only the size of a parameter is known), `TensorMap`s.
            shared_bytes: dynamic shared memory per block.
            cluster: blocks per thread block cluster.
            cooperative: cooperative launch: all blocks are co-resident and can synchronize grid-wide.
            use_pdl: programmatic dependent launch (sm_90 and later): the kernel may start before the previous one has
                finished and must call `kw::griddepcontrol_wait` before it reads that kernel's results.
        Raises:
            UsageError: wrong number of arguments, an argument that does not fit its parameter, or a launch that exceeds
                the limits of the device.
        """
        shape = (grid, block, shared_bytes, cluster, cooperative, use_pdl)
        config = self._configs.get(shape) or self._launch_config(*shape)
        marshal = self._marshallers.get(tuple(map(type, arguments))) or self._make_marshaller(arguments)
        raw_stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
        try:
            values = marshal(*arguments)
            if self._takes_maps:
                self._launch_with_maps(shape, raw_stream, values)
            else:
                self._launch(_stream_from_handle(raw_stream), config, self._kernel, *values)
        except OverflowError as fault:
            raise UsageError(f"an argument of {self.name} does not fit its parameter: {fault}") from None
        except UsageError:
            raise
        except Exception as fault:  # cuda-core's errors have no common base class below Exception
            raise _launch_error(
                f"launch of {grid} blocks of {block} threads in clusters of {cluster}", fault
            ) from fault

    def _launch_with_maps(self, shape: tuple[Any, ...], stream: int, values: tuple[Any, ...]) -> None:
        """Launch through the driver: cuda-core accepts tensor maps of its own only."""
        if (launch := self._map_launches.get(shape)) is None:
            if len(self._map_launches) >= MAX_CACHED_CONFIGS:
                self._map_launches.clear()
            launch = self._map_launches[shape] = _MapLaunch(self.handle, self._parameter_bytes, *shape)
        launch(stream, values)

    def make_launcher(
        self, grid: Dim3, block: Dim3, shared_bytes: int, cluster: Dim3, *, use_pdl: bool = False
    ) -> Callable[..., None]:
        """Return an unchecked launch of this shape: a function of a stream handle and `convert_scalars` arguments."""
        config = self._launch_config(grid, block, shared_bytes, cluster, False, use_pdl)
        launch, kernel = self._launch, self._kernel

        def relaunch(stream: int, *arguments: Any) -> None:
            launch(_stream_from_handle(stream), config, kernel, *arguments)

        return relaunch

    def convert_scalars(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Convert the Python numbers among the arguments to the types of their parameters."""
        sized = zip(arguments, self._parameter_bytes, strict=True)
        return tuple(
            one if isinstance(one, torch.Tensor) else SCALAR_TYPES[type(one), size](one) for one, size in sized
        )

    def max_active_clusters(self, block: Dim3, shared_bytes: int, cluster: Dim3) -> int:
        """Number of clusters of this shape that the current device can hold at the same time."""
        cluster, device = _to_dim3(cluster), torch._C._cuda_getDevice()
        config = self._launch_config(cluster, block, shared_bytes, cluster, False, False)
        stream = _stream_from_handle(torch._C._cuda_getCurrentRawStream(device))
        return self._kernel.occupancy.max_active_clusters(config, stream=stream)

    @property
    def handle(self) -> int:
        """The driver's handle of the kernel, as `StructLaunch` takes it."""
        return int(self._kernel.handle)

    def allow_shared_memory(self, shared_bytes: int) -> None:
        """Permit launches with this much dynamic shared memory.

        Raises:
            UsageError: the device has less.
        """
        if error := self._raise_shared_memory_limit(shared_bytes):
            raise _launch_error(f"{shared_bytes:,} bytes of shared memory for {self.name}", error)

    def _raise_shared_memory_limit(self, shared_bytes: int) -> str:
        """Returns the driver's error text, empty on success."""
        if shared_bytes <= self._shared_bytes:
            return ""
        error = _set_max_dynamic_smem(int(self._kernel.handle), shared_bytes)
        self._shared_bytes = self._shared_bytes if error else shared_bytes
        return error

    def _make_marshaller(self, arguments: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
        """Generate the conversion of arguments of these types: one expression takes a third of the time of a loop."""
        if len(arguments) != len(self._parameter_bytes):
            raise UsageError(f"{self.name} takes {len(self._parameter_bytes)} arguments, not {len(arguments)}")
        values, checks = [], ["True"]
        names: dict[str, Any] = {"raise_not_on_cuda": _raise_not_on_cuda}
        for i, (argument, size) in enumerate(zip(arguments, self._parameter_bytes, strict=True)):
            if isinstance(argument, torch.Tensor) and size == 8:
                values.append(f"a{i}.data_ptr(),")
                checks.append(f"a{i}.is_cuda")
            elif isinstance(argument, TensorMap) and size == TENSOR_MAP_BYTES:
                values.append(f"a{i},")
            elif scalar_type := SCALAR_TYPES.get((type(argument), size)):
                values.append(f"{scalar_type.__name__}(a{i}),")
                names[scalar_type.__name__] = scalar_type
            else:
                raise UsageError(f"argument {i} of {self.name} is {argument!r:.80}, its parameter has {size} bytes")
        args = ", ".join(f"a{i}" for i in range(len(arguments)))
        text = f"lambda {args}: ({''.join(values)}) if {' and '.join(checks)} else raise_not_on_cuda({args})"
        self._marshallers[tuple(map(type, arguments))] = marshal = eval(text, names)
        return marshal

    def _launch_config(
        self, grid: Dim3, block: Dim3, shared_bytes: int, cluster: Dim3, cooperative: bool, use_pdl: bool
    ) -> Any:
        """Check and cache a launch configuration; the cache holds up to MAX_CACHED_CONFIGS."""
        what = f"launch of {grid} blocks of {block} threads with {shared_bytes:,} bytes of shared memory"
        blocks, clusters = _to_dim3(grid), _to_dim3(cluster)
        if any(grid_dim % cluster_dim for grid_dim, cluster_dim in zip(blocks, clusters, strict=True)):
            raise _launch_error(what, f"the grid is not a multiple of the cluster size {cluster}")
        if error := self._raise_shared_memory_limit(shared_bytes):
            raise _launch_error(what, error)
        try:
            config = import_cuda_core().LaunchConfig(
                # cuda-core counts the grid in clusters
                grid=tuple(grid_dim // cluster_dim for grid_dim, cluster_dim in zip(blocks, clusters, strict=True)),
                block=block,
                cluster=None if cluster == 1 else clusters,
                shmem_size=shared_bytes,
                is_cooperative=cooperative,
                programmatic_stream_serialization=use_pdl,
            )
        except Exception as fault:
            raise _launch_error(what, fault) from fault
        if len(self._configs) >= MAX_CACHED_CONFIGS:
            self._configs.clear()
        self._configs[grid, block, shared_bytes, cluster, cooperative, use_pdl] = config
        return config


class _MapLaunch:
    """A launch whose parameters include tensor maps: the driver reads each parameter at its own address."""

    def __init__(
        self,
        function: int,
        parameter_bytes: Sequence[int],
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        cluster: Dim3,
        cooperative: bool,
        use_pdl: bool,
    ) -> None:
        self._lock = threading.Lock()  # the parameters of two threads must not mix
        self._slots = ctypes.create_string_buffer(_SLOT_BYTES * len(parameter_bytes))
        first = ctypes.addressof(self._slots)
        self._addresses = (ctypes.c_void_p * len(parameter_bytes))(
            *(first + _SLOT_BYTES * i for i in range(len(parameter_bytes)))
        )
        self._launch = DriverLaunch(
            function,
            self._addresses,
            grid=_to_dim3(grid),
            block=_to_dim3(block),
            shared_bytes=shared_bytes,
            cluster=_to_dim3(cluster),
            cooperative=cooperative,
            use_pdl=use_pdl,
        )

    def __call__(self, stream: int, values: Sequence[Any]) -> None:
        """Launch with marshalled arguments: addresses, NumPy scalars and tensor maps."""
        with self._lock:
            for i, value in enumerate(values):
                if isinstance(value, TensorMap):
                    self._addresses[i] = value.address
                elif isinstance(value, int):
                    struct.pack_into("q", self._slots, _SLOT_BYTES * i, value)
                else:
                    content = value.tobytes()
                    self._slots[_SLOT_BYTES * i : _SLOT_BYTES * i + len(content)] = content
            self._launch(stream)


def current_arch() -> str:
    """Architecture of the current device, with the architecture-specific suffix from 9.0 on: sm_90a."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' * (major >= 9)}"


def _raise_not_on_cuda(*arguments: Any) -> tuple[Any, ...]:
    devices = [one.device for one in arguments if isinstance(one, torch.Tensor) and not one.is_cuda]
    raise UsageError(f"expected CUDA tensors, got one on {devices[0]}")


def _to_dim3(sizes: Dim3) -> tuple[int, ...]:
    return (*((sizes,) if isinstance(sizes, int) else sizes), 1, 1)[:3]


@functools.cache
def _stream_from_handle(raw: int) -> Any:
    return import_cuda_core().Stream.from_handle(raw)


def _set_max_dynamic_smem(kernel: int, shared_bytes: int) -> str:
    """Raise a kernel's limit of dynamic shared memory; returns the driver's error text, empty on success."""
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    device = driver.CUdevice(torch.cuda.current_device())
    status = driver.cuKernelSetAttribute(attribute, shared_bytes, driver.CUkernel(kernel), device)[0]
    return driver.cuGetErrorString(status)[1].decode() if int(status) else ""


def _launch_error(what: str, fault: object) -> UsageError:
    message = f"{what} failed: {fault}"
    return UsageError(message[:400], next="use fewer threads, less shared memory or another grid")


def _load_error(cubin: Cubin, name: str, fault: Exception) -> Exception:
    message = str(fault)
    if any(code in message for code in ("NO_BINARY_FOR_GPU", "INVALID_SOURCE", "INVALID_IMAGE")):
        arch = current_arch()
        return DeviceError(f"machine code for {cubin.arch} does not run on {arch}", next=f"compile it for {arch}")
    return UsageError(f"no kernel {name!r} in this cubin: {message[:200]}", next='declare it extern "C" __global__')
