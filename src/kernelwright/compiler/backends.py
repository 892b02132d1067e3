"""Who prints regions for which device: the seam at which another generator, or a search, comes in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from kernelwright.compiler.cpp.configs import choices as cpu_choices
from kernelwright.compiler.kernel_source import (
    CPU_IMPORTS,
    CUDA_IMPORTS,
    Kernel,
    compiled_text,
    cpu_text,
    cuda_text,
    load,
)
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.triton.configs import choices as cuda_choices


class Generator(Protocol):
    """Prints kernels for one device."""

    imports: str
    absent: str
    """How a file says, before anything else, that its kernels did not compile: `... or `, or nothing."""

    def choices(self, region: Region) -> Sequence[Any]:
        """The ways in which it can run a region, as records, the likeliest first."""
        ...

    def text(self, kernels: Sequence[Kernel]) -> str:
        """Python that defines one function for each kernel, without its imports.

        Raises:
            Misfit: it has no form for a region.
        """
        ...

    def module(self, kernels: Sequence[Kernel]) -> str:
        """The same with its imports: a module of its own."""
        ...

    def load(self, text: str) -> ModuleType:
        """The module, compiled."""
        ...


class _Printed:
    """A generator that is a space and a printer."""

    def __init__(
        self, imports: str, space: Callable[[Region], Sequence[Any]], printer: Callable[..., str], absent: str = ""
    ) -> None:
        self.imports, self._space, self._printer, self.absent = imports, space, printer, absent

    def choices(self, region: Region) -> Sequence[Any]:
        return self._space(region)

    def text(self, kernels: Sequence[Kernel]) -> str:
        """See `Generator.text`; regions that torch.compile won stand behind the others as plain torch."""
        own = [kernel for kernel in kernels if not kernel.code]
        plain = [compiled_text(kernel) for kernel in kernels if kernel.code]
        return "\n\n".join([*([self._printer(own)] if own else []), *plain])

    def module(self, kernels: Sequence[Kernel]) -> str:
        return f"{self.imports}\n\n{self.text(kernels)}"

    def load(self, text: str) -> ModuleType:
        return load(text)


CPP = _Printed(CPU_IMPORTS, cpu_choices, cpu_text, "KERNELS is None or ")
TRITON = _Printed(CUDA_IMPORTS, cuda_choices, cuda_text)


def generator_for(device: str) -> Generator:
    """C++ with vectors and threads for the CPU, Triton for CUDA."""
    return {"cpu": CPP, "cuda": TRITON}[device]
