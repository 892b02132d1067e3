"""All kernels of the library by name; does not import torch."""

from __future__ import annotations

from kernelwright.core.errors import NotFoundError
from kernelwright.core.library import KernelLibrary, LibraryKernel
from kernelwright.kernels.activations.spec import KERNELS as ACTIVATIONS
from kernelwright.kernels.kernel_spec import CudaSignature, Kernel, OfflineSignature
from kernelwright.kernels.losses.spec import KERNELS as LOSSES
from kernelwright.kernels.matmul.spec import KERNELS as MATMUL
from kernelwright.kernels.norms.spec import KERNELS as NORMS
from kernelwright.kernels.rotary.spec import KERNELS as ROTARY
from kernelwright.kernels.softmaxes.spec import KERNELS as SOFTMAXES

KERNELS = {one.name: one for one in (*NORMS, *SOFTMAXES, *LOSSES, *ACTIVATIONS, *ROTARY, *MATMUL)}


def list_kernels() -> KernelLibrary:
    """All kernels, as records for display."""
    return KernelLibrary(kernels=tuple(map(_to_record, KERNELS.values())))


def _to_record(kernel: Kernel) -> LibraryKernel:
    module, _, function = kernel.entry_point.partition(":")
    return LibraryKernel(
        name=kernel.name,
        description=kernel.summary,
        import_path=f"from {module} import {function}",
        variants=tuple(kernel.variants),
        dtypes=kernel.dtypes,
        constraints=kernel.limits,
        source=kernel.source,
    )


def family_package(name: str) -> str:
    """The package of a kernel's family."""
    return next(iter(KERNELS[name].variants.values())).package


def find_signature(target: str) -> OfflineSignature | CudaSignature:
    """The offline signature of `NAME` or `NAME:VARIANT`; the first variant by default.

    Raises:
        NotFoundError: no such kernel or variant.
    """
    name, _, variant = target.partition(":")
    if name not in KERNELS:
        raise NotFoundError(f"no kernel {name!r} in the library; there are {', '.join(KERNELS)}", next="kw kernels")
    variants = KERNELS[name].variants
    if variant and variant not in variants:
        raise NotFoundError(f"{name} has no variant {variant!r}; there are {', '.join(variants)}", next="kw kernels")
    return variants[variant or next(iter(variants))]
