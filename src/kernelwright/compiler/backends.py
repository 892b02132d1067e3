"""Who prints regions for which device: the seam at which another generator, or a search, comes in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from kernelwright.compiler.cpp.configs import generate_configs as cpu_choices
from kernelwright.compiler.kernel_source import (
    CPU_IMPORTS,
    CUDA_IMPORTS,
    RegionKernel,
    emit_cpp,
    emit_torch_compile,
    emit_triton,
    load,
)
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.triton.configs import generate_configs as cuda_choices


class Backend(Protocol):
    """Prints kernels for one device."""

    imports: str
    missing_kernels_check: str
    """How a file says, before anything else, that its kernels did not compile: `... or `, or nothing."""

    def generate_configs(self, region: Region) -> Sequence[Any]:
        """The ways in which it can run a region, as records, the likeliest first."""
        ...

    def emit(self, kernels: Sequence[RegionKernel]) -> str:
        """Python that defines one function for each kernel, without its imports.

        Raises:
            Misfit: it has no form for a region.
        """
        ...

    def emit_module(self, kernels: Sequence[RegionKernel]) -> str:
        """The same with its imports: a module of its own."""
        ...

    def load(self, text: str) -> ModuleType:
        """The module, compiled."""
        ...


class _TemplateBackend:
    """A generator that is a space and a printer."""

    def __init__(
        self, imports: str, space: Callable[[Region], Sequence[Any]], printer: Callable[..., str], absent: str = ""
    ) -> None:
        self.imports, self._generate_configs, self._printer, self.missing_kernels_check = (
            imports,
            space,
            printer,
            absent,
        )

    def generate_configs(self, region: Region) -> Sequence[Any]:
        return self._generate_configs(region)

    def emit(self, kernels: Sequence[RegionKernel]) -> str:
        """See `Backend.text`; regions that torch.compile won stand behind the others as plain torch."""
        own = [kernel for kernel in kernels if not kernel.torch_source]
        plain = [emit_torch_compile(kernel) for kernel in kernels if kernel.torch_source]
        return "\n\n".join([*([self._printer(own)] if own else []), *plain])

    def emit_module(self, kernels: Sequence[RegionKernel]) -> str:
        return f"{self.imports}\n\n{self.emit(kernels)}"

    def load(self, text: str) -> ModuleType:
        return load(text)


CPP = _TemplateBackend(CPU_IMPORTS, cpu_choices, emit_cpp, "KERNELS is None or ")
TRITON = _TemplateBackend(CUDA_IMPORTS, cuda_choices, emit_triton)


def backend_for(device: str) -> Backend:
    """C++ with vectors and threads for the CPU, Triton for CUDA."""
    return {"cpu": CPP, "cuda": TRITON}[device]
