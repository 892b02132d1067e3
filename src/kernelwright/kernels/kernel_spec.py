"""Spec of a library kernel: name, entry point, limits, and signatures for offline compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

DTYPES = ("float16", "bfloat16", "float32")
ParamMap = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class OfflineSignature:
    """A Triton kernel with the parameters of a typical launch, for compilation without a GPU.

    Attributes:
        function: module and name, `kernelwright.kernels.norms.kernel:norm_forward`.
        params: parameters by name: Triton types (`*bf16`, `i32`) or constants; missing parameters are None.
    """

    function: str
    params: ParamMap
    num_warps: int

    @property
    def package(self) -> str:
        """The package of the kernel's family."""
        return self.function.rpartition(".")[0]


class CudaBuild(NamedTuple):
    """How a kernel is compiled and launched.

    Attributes:
        defines: macros.
        threads, shared_bytes: threads and dynamic shared memory of a block.
    """

    defines: Mapping[str, str]
    threads: int
    shared_bytes: int


@dataclass(frozen=True)
class CudaSignature:
    """A CUDA C++ kernel in the configuration of a typical launch, for compilation without a GPU.

    Attributes:
        package: of the kernel's family, `kernelwright.kernels.matmul`.
        source: file in that package.
        entry: name of the kernel.
        choose_build: chooses the configuration, which may read a table of the user.
    """

    package: str
    source: str
    entry: str
    choose_build: Callable[[], CudaBuild]

    @property
    def path(self) -> Path:
        """The source file."""
        return Path(__file__).parents[1].joinpath(*self.package.split(".")[1:], self.source)


@dataclass(frozen=True)
class Kernel:
    """A kernel of the library.

    Attributes:
        entry_point: module and name of the public function.
        variants: offline signatures by name; the first is the default.
        limits: restrictions on the arguments.
        source: the paper or document that it follows.
    """

    name: str
    summary: str
    entry_point: str
    variants: Mapping[str, OfflineSignature | CudaSignature]
    limits: str
    source: str
    dtypes: tuple[str, ...] = DTYPES
