"""CUDA C++ for the GPU: one source text in, machine code out through NVRTC, and its launch from torch.

Compiling needs no GPU and no toolkit; the machine code is cached by content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.errors import CompileError, DeviceError, MissingDependency

STANDARD = "c++17"
_ERRORS_SHOWN = 3


def compile_cubin(source: str, arch: str = "sm_90a") -> bytes:
    """The machine code of a source, compiled once per content, architecture and compiler.

    Args:
        arch: such as sm_90a, where wgmma and TMA exist, or sm_80.
    Raises:
        MissingDependency: cuda-core or NVRTC is not installed.
        CompileError: the compiler refused; the message holds its first errors.
    """
    core = _cuda_core()
    path = cache_dir("cuda") / f"{digest(source, arch, STANDARD, _compiler())}.cubin"
    if path.exists():
        return path.read_bytes()
    try:
        found = core.Program(source, "c++", core.ProgramOptions(arch=arch, std=STANDARD)).compile("cubin")
    except Exception as fault:  # NVRTC's own error holds the log
        errors = [line for line in str(fault).splitlines() if "error" in line][:_ERRORS_SHOWN]
        raise CompileError("; ".join(errors) or str(fault)[:500], next="mend the source") from fault
    write_atomic(path, bytes(found.code))
    return bytes(found.code)


class CudaKernel:
    """A kernel of a source, launched on torch's current stream.

    Args:
        name: its `extern "C"` name.
        arch: of the current device when left out; 9.0 is sm_90a.
    Raises:
        DeviceError: no CUDA device here.
    """

    def __init__(self, source: str, name: str, arch: str | None = None) -> None:
        import torch

        if not torch.cuda.is_available():  # asked first: a kernel that is wanted without a driver hangs the second time
            raise DeviceError("no CUDA device here", next="compile_cubin compiles without one")
        major, minor = torch.cuda.get_device_capability()
        arch = arch or f"sm_{major}{minor}{'a' * (major >= 9)}"
        torch.cuda.init()
        core = _cuda_core()
        core.Device(torch.cuda.current_device()).set_current()
        self._kernel = core.ObjectCode.from_cubin(compile_cubin(source, arch)).get_kernel(name)

    def __call__(self, grid: int, block: int, arguments: Sequence[Any], shared_bytes: int = 0) -> None:
        """One launch.

        Args:
            grid: blocks.
            block: threads of a block.
            arguments: tensors on the device, in the order of the kernel's pointers; NumPy scalars for its numbers.
            shared_bytes: dynamic shared memory of a block.
        """
        import torch

        core = _cuda_core()
        given = [part.data_ptr() if isinstance(part, torch.Tensor) else part for part in arguments]
        core.launch(
            core.Stream.from_handle(torch.cuda.current_stream().cuda_stream),
            core.LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes),
            self._kernel,
            *given,
        )


def _cuda_core() -> Any:
    try:
        import cuda.core
    except ImportError as fault:
        raise MissingDependency(
            f"cuda-core is not installed: {fault}", next="pip install 'kernelwright[cuda]'"
        ) from None
    return cuda.core


def _compiler() -> str:
    from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]

    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))
