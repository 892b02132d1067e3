"""A kernel of some machine code, launched from torch with as little in between as can be: what a launch needs besides
its arguments is made once and kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.toolchain.cuda.compiler import NO_DEFINES, Cubin, compile_cubin, import_cuda_core

Dim3 = int | tuple[int, ...]
DEFAULT_DYNAMIC_SMEM_BYTES = 48 * 2**10
"""Dynamic shared memory beyond this has to be asked for once for each kernel."""
MAX_CACHED_CONFIGS = 256
SCALAR_TYPES: dict[tuple[type, int], type[np.generic]] = {
    **{(float, size): number for size, number in ((2, np.float16), (4, np.float32), (8, np.float64))},
    **{(int, size): number for size, number in ((1, np.int8), (2, np.int16), (4, np.int32), (8, np.int64))},
    **{(bool, size): number for size, number in ((1, np.bool_), (4, np.int32), (8, np.int64))},
}
"""As what a number of Python's passes, by the size of the parameter."""


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
        cubin = source if isinstance(source, Cubin) else compile_cubin(source, arch or current_arch(), defines=defines)
        core = import_cuda_core()
        core.Device(torch.cuda.current_device()).set_current()
        self.name, self.cubin = name, cubin
        try:
            self._kernel = core.ObjectCode.from_cubin(cubin.code).get_kernel(name)
        except Exception as fault:
            raise _load_error(cubin, name, fault) from fault
        self._shared_bytes = DEFAULT_DYNAMIC_SMEM_BYTES
        self._parameter_bytes = [part.size for part in self._kernel.arguments_info]
        self._launch = core.launch
        self._configs: dict[Any, Any] = {}
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
        """One launch.

        Args:
            grid: blocks, along one to three dimensions.
            block: threads of a block, likewise.
            arguments: in the order of the kernel's: tensors on the device for pointers, Python's numbers for numbers
                (a float where the kernel takes a float: of a parameter only the size is known).
            shared_bytes: dynamic shared memory of a block.
            cluster: blocks of a cluster, which have each other's shared memory.
            cooperative: all blocks are on the device at once and can wait for each other.
            use_pdl: it may begin beside the end of what was launched before, for which it has to wait itself
                (`kw::wait_for_earlier`; sm_90 and later).
        Raises:
            UsageError: another number of arguments, one that does not fit its parameter, or more than a block may have.
        """
        shape = (grid, block, shared_bytes, cluster, cooperative, use_pdl)
        config = self._configs.get(shape) or self._launch_config(*shape)
        passed = self._marshallers.get(tuple(map(type, arguments))) or self._make_marshaller(arguments)
        stream = _stream_from_handle(torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice()))
        try:
            self._launch(stream, config, self._kernel, *passed(*arguments))
        except OverflowError as fault:
            raise UsageError(f"an argument of {self.name} does not fit its parameter: {fault}") from None
        except UsageError:
            raise
        except Exception as fault:  # cuda-core's own derive from nothing closer
            raise _launch_error(
                f"a launch of {grid} blocks of {block} threads in clusters of {cluster}", fault
            ) from fault

    def make_launcher(
        self, grid: Dim3, block: Dim3, shared_bytes: int, cluster: Dim3, *, use_pdl: bool = False
    ) -> Callable[..., None]:
        """What launches again in that shape, of a stream's handle and `convert_scalars` arguments; nothing is
        checked."""
        config = self._launch_config(grid, block, shared_bytes, cluster, False, use_pdl)
        launch, kernel = self._launch, self._kernel

        def again(stream: int, *arguments: Any) -> None:
            launch(_stream_from_handle(stream), config, kernel, *arguments)

        return again

    def convert_scalars(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments that a launch took, numbers in the types of their parameters."""
        sized = zip(arguments, self._parameter_bytes, strict=True)
        return tuple(
            one if isinstance(one, torch.Tensor) else SCALAR_TYPES[type(one), size](one) for one, size in sized
        )

    def max_active_clusters(self, block: Dim3, shared_bytes: int, cluster: Dim3) -> int:
        """How many clusters the current device runs at once, of such blocks as a launch takes them."""
        cluster, here = _to_dim3(cluster), torch._C._cuda_getDevice()
        config = self._launch_config(cluster, block, shared_bytes, cluster, False, False)
        stream = _stream_from_handle(torch._C._cuda_getCurrentRawStream(here))
        return self._kernel.occupancy.max_active_clusters(config, stream=stream)

    def _make_marshaller(self, arguments: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
        """What makes of arguments of these types what the driver takes: one expression costs a third of a loop."""
        if len(arguments) != len(self._parameter_bytes):
            raise UsageError(f"{self.name} takes {len(self._parameter_bytes)} arguments, not {len(arguments)}")
        parts, there = [], ["True"]
        known: dict[str, Any] = {"refuse": _raise_not_on_cuda}
        for at, (argument, size) in enumerate(zip(arguments, self._parameter_bytes, strict=True)):
            if isinstance(argument, torch.Tensor) and size == 8:
                parts.append(f"a{at}.data_ptr(),")
                there.append(f"a{at}.is_cuda")
            elif number := SCALAR_TYPES.get((type(argument), size)):
                parts.append(f"{number.__name__}(a{at}),")
                known[number.__name__] = number
            else:
                raise UsageError(f"argument {at} of {self.name} is {argument!r:.80}, its parameter has {size} bytes")
        given = ", ".join(f"a{at}" for at in range(len(arguments)))
        text = f"lambda {given}: ({''.join(parts)}) if {' and '.join(there)} else refuse({given})"
        self._marshallers[tuple(map(type, arguments))] = passed = eval(text, known)
        return passed

    def _launch_config(
        self, grid: Dim3, block: Dim3, shared_bytes: int, cluster: Dim3, cooperative: bool, use_pdl: bool
    ) -> Any:
        """The shape of a launch, checked and, up to some number of them, kept."""
        what = f"a launch of {grid} blocks of {block} threads with {shared_bytes:,} bytes of shared memory"
        blocks, clusters = _to_dim3(grid), _to_dim3(cluster)
        if any(many % one for many, one in zip(blocks, clusters, strict=True)):
            raise _launch_error(what, f"clusters of {cluster} do not divide it")
        if shared_bytes > self._shared_bytes:
            if said := _set_max_dynamic_smem(int(self._kernel.handle), shared_bytes):
                raise _launch_error(what, said)
            self._shared_bytes = shared_bytes
        try:
            config = import_cuda_core().LaunchConfig(
                grid=tuple(many // one for many, one in zip(blocks, clusters, strict=True)),  # counted in clusters
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


def current_arch() -> str:
    """The architecture of the current device, with what only it has: sm_90a for 9.0."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' * (major >= 9)}"


def _raise_not_on_cuda(*arguments: Any) -> tuple[Any, ...]:
    elsewhere = [one.device for one in arguments if isinstance(one, torch.Tensor) and not one.is_cuda]
    raise UsageError(f"a tensor is on {elsewhere[0]}, the kernel runs on CUDA")


def _to_dim3(sizes: Dim3) -> tuple[int, ...]:
    return (*((sizes,) if isinstance(sizes, int) else sizes), 1, 1)[:3]


@functools.cache
def _stream_from_handle(raw: int) -> Any:
    return import_cuda_core().Stream.from_handle(raw)


def _set_max_dynamic_smem(kernel: int, shared_bytes: int) -> str:
    """Asks for dynamic shared memory; what the driver has against it, or nothing."""
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    device = driver.CUdevice(torch.cuda.current_device())
    said = driver.cuKernelSetAttribute(attribute, shared_bytes, driver.CUkernel(kernel), device)[0]
    return driver.cuGetErrorString(said)[1].decode() if int(said) else ""


def _launch_error(what: str, fault: object) -> UsageError:
    message = f"the driver refused {what}: {fault}"
    return UsageError(message[:400], next="fewer threads, less shared memory, or another grid")


def _load_error(cubin: Cubin, name: str, fault: Exception) -> Exception:
    said = str(fault)
    if "NO_BINARY_FOR_GPU" in said or "INVALID_SOURCE" in said or "INVALID_IMAGE" in said:
        here = current_arch()
        return DeviceError(f"machine code for {cubin.arch} does not run here ({here})", next=f"compile it for {here}")
    return UsageError(f"no kernel {name!r} in this machine code: {said[:200]}", next='declare it extern "C" __global__')
