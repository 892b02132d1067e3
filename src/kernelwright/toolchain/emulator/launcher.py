"""Launches of CUDA C++ kernels on the CPU, with the interface of `toolchain.cuda.launcher.CudaKernel`."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.core.errors import CandidateError, SetupError
from kernelwright.toolchain.cpp import IS_MACOS
from kernelwright.toolchain.emulator.arguments import Argument, Dim3, LaunchShape, bind
from kernelwright.toolchain.emulator.build import EmulatedLibrary, load_library
from kernelwright.toolchain.emulator.source import NO_DEFINES, translate_source


class LaunchStruct(ctypes.Structure):
    """`KwLaunch` of runtime.h."""

    error: bytes
    error_line: int
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("cluster", ctypes.c_uint),
        ("workers", ctypes.c_uint),
        ("call", ctypes.c_void_p),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
        ("dynamic_shared", ctypes.c_void_p),
        ("error_line", ctypes.c_int),
        ("error", ctypes.c_char * 1024),
    ]


class EmulatedKernel:
    """A kernel of a CUDA C++ source on the CPU: the grid is a loop, the threads of a block are fibers.

    Args:
        source: source text without inline PTX; several kernels of one source are compiled once.
        name: a `__global__` function, or an instance of a template such as `sgemm<32>`.
        path: the name of the source in errors.
        defines: macros.
    Raises:
        CandidateError: no such kernel.
        CompileError: compilation failed, or the source needs a GPU; `where` is the line.
    """

    def __init__(
        self, source: str, name: str, *, path: str = "kernel.cu", defines: Mapping[str, str] = NO_DEFINES
    ) -> None:
        self.source, self.name = translate_source(source, path).with_defines(defines), name
        self._library = load_library(self.source, name)

    def __call__(
        self, grid: Dim3, block: Dim3, arguments: Sequence[Any], shared_bytes: int = 0, cluster: Dim3 = 1
    ) -> None:
        """Run one launch to its end.

        Args:
            grid: blocks, as one to three numbers.
            block: threads per block, as one to three numbers.
            arguments: in the order of the kernel's parameters: CPU tensors or None (null) for pointers, numbers.
            shared_bytes: dynamic shared memory per block.
            cluster: blocks of a cluster, in x.
        Raises:
            UsageError: more threads, blocks or shared memory than a GPU has; clusters that do not divide the grid.
            SetupError: clusters on macOS.
            SignatureError: the arguments do not fit the parameters.
            CandidateError: deadlock, such as at a `__syncthreads` that not all threads reach, or an access that is not
                permitted, such as to a block of the cluster that has exited; `where` is the line.
        """
        shape = LaunchShape.from_sizes(grid, block, shared_bytes, cluster)
        if shape.cluster > 1 and IS_MACOS:
            raise SetupError("clusters are not emulated on macOS", next="run it on Linux")
        run_launch(self._library, shape, self.bind(arguments), _worker_count(shape), self.source.path)

    def bind(self, arguments: Sequence[Any]) -> list[Argument]:
        """Convert each argument for its parameter; errors as for `arguments.bind`."""
        return bind(self.name, arguments, self._library.parameters, self.source.parameters(self.name))


def run_launch(
    library: EmulatedLibrary, shape: LaunchShape, arguments: Sequence[Argument], workers: int, path: str
) -> None:
    """Run one launch on `workers` operating-system threads."""
    buffers = [one.buffer() for one in arguments]
    values = (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
    launch = LaunchStruct(
        grid=shape.grid, block=shape.block, shared_bytes=shape.shared_bytes, cluster=shape.cluster, workers=workers
    )
    launch.call = ctypes.cast(library.call, ctypes.c_void_p)
    launch.dynamic_shared = ctypes.cast(library.dynamic_shared, ctypes.c_void_p)
    launch.values = values
    library.runtime.kw_run(ctypes.byref(launch))
    if launch.error:
        raise launch_error(launch.error.decode(), launch.error_line, path)


def launch_error(message: str, line: int, path: str) -> CandidateError:
    """Error of a launch that stopped: at a deadlock, at an access that is not permitted, or out of stack."""
    is_deadlock = message.startswith("deadlock")
    return CandidateError(
        message,
        where=f"{path}:{line}" if line else path,
        next="make every thread of the block reach the same __syncthreads(), every lane of the mask the same operation "
        "and every mbarrier the arrivals and bytes that it expects"
        if is_deadlock
        else "wait for asynchronous operations before memory is used again or a block exits",
    )


def _worker_count(shape: LaunchShape) -> int:
    import torch

    return min(torch.get_num_threads(), math.prod(shape.grid) // shape.cluster)
