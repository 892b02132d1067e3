"""Who prints regions for which device: the seam at which another generator, or a search, comes in."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol

from kernelwright.optimize.emit import CPU_IMPORTS, Kernel, cpu_text, load
from kernelwright.optimize.print_cpp import CpuChoice, choices
from kernelwright.optimize.region import Region


class Generator(Protocol):
    """Prints kernels for one device."""

    imports: str

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


class Cpp:
    """C++ with vectors and threads, for the CPU."""

    imports = CPU_IMPORTS

    def choices(self, region: Region) -> Sequence[CpuChoice]:
        return choices(region)

    def text(self, kernels: Sequence[Kernel]) -> str:
        return cpu_text(kernels)

    def module(self, kernels: Sequence[Kernel]) -> str:
        return f"{self.imports}\n\n{self.text(kernels)}"

    def load(self, text: str) -> ModuleType:
        return load(text)


def generator_for(device: str) -> Generator:
    return {"cpu": Cpp()}[device]
