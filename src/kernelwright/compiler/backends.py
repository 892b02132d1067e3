"""The kernel generator of each device: the interface for a further backend or search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from kernelwright.compiler.cpp.configs import generate_configs as generate_cpp_configs
from kernelwright.compiler.kernel_source import (
    CPU_IMPORTS,
    CUDA_IMPORTS,
    RegionKernel,
    emit_cpp,
    emit_torch_compile,
    emit_triton,
    load,
)
from kernelwright.compiler.library.products import MISSING_GEMM_CHECK, ProductConfig
from kernelwright.compiler.regions.contraction import AnyRegion
from kernelwright.compiler.triton.generators import generate_configs as generate_triton_configs


class Backend(Protocol):
    """A kernel generator for one device.

    Attributes:
        imports: import statements of a generated module.
    """

    imports: str

    def missing_kernels_check(self, kernels: Sequence[RegionKernel]) -> str:
        """Return `CONDITION or `, true in a file whose kernels did not compile, or lack a library; empty if that cannot
        be."""
        ...

    def generate_configs(self, region: AnyRegion) -> Sequence[Any]:
        """Return the configs that can run a region, most promising first."""
        ...

    def emit(self, kernels: Sequence[RegionKernel]) -> str:
        """Generate Python that defines one function for each kernel, without imports.

        Raises:
            Unsupported: the backend does not support a region.
        """
        ...

    def emit_module(self, kernels: Sequence[RegionKernel]) -> str:
        """Generate the same as a module, with imports."""
        ...

    def load(self, text: str) -> ModuleType:
        """Import a generated module; C++ kernels are compiled."""
        ...


class _TemplateBackend:
    """A backend from a config generator and a printer of kernels."""

    def __init__(
        self,
        imports: str,
        generate_configs: Callable[[Any], Sequence[Any]],
        printer: Callable[..., str],
        missing_kernels_check: Callable[[Sequence[RegionKernel]], str],
    ) -> None:
        self.imports, self._missing_kernels_check = imports, missing_kernels_check
        self._generate_configs, self._printer = generate_configs, printer

    def missing_kernels_check(self, kernels: Sequence[RegionKernel]) -> str:
        generated = [kernel for kernel in kernels if not kernel.torch_source]
        return self._missing_kernels_check(generated) if generated else ""

    def generate_configs(self, region: AnyRegion) -> Sequence[Any]:
        return self._generate_configs(region)

    def emit(self, kernels: Sequence[RegionKernel]) -> str:
        """See `Backend.emit`; regions for torch.compile follow the generated kernels as plain torch code."""
        generated = [kernel for kernel in kernels if not kernel.torch_source]
        torch_functions = [emit_torch_compile(kernel) for kernel in kernels if kernel.torch_source]
        return "\n\n".join([*([self._printer(generated)] if generated else []), *torch_functions])

    def emit_module(self, kernels: Sequence[RegionKernel]) -> str:
        return f"{self.imports}\n\n{self.emit(kernels)}"

    def load(self, text: str) -> ModuleType:
        return load(text)


CPP = _TemplateBackend(CPU_IMPORTS, generate_cpp_configs, emit_cpp, lambda kernels: "KERNELS is None or ")
TRITON = _TemplateBackend(
    CUDA_IMPORTS,
    generate_triton_configs,
    emit_triton,
    lambda kernels: MISSING_GEMM_CHECK if uses_library(kernels) else "",
)


def uses_library(kernels: Sequence[RegionKernel]) -> bool:
    """Whether kernels of the library are called, so that a file needs Kernelwright."""
    return any(isinstance(kernel.config, ProductConfig) for kernel in kernels)


def backend_for(device: str) -> Backend:
    """Return the backend of a device: vectorised, multithreaded C++ for `cpu`, Triton for `cuda`."""
    return {"cpu": CPP, "cuda": TRITON}[device]
