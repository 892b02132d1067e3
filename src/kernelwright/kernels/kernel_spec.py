"""Spec of a library kernel: name, entry point, limits, and signatures for offline compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DTYPES = ("float16", "bfloat16", "float32")
ParamMap = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class OfflineSignature:
    """A device kernel with the parameters of a typical launch, for compilation without a GPU.

    Attributes:
        function: module and name, `kernelwright.kernels.norms.kernel:norm_forward`.
        params: parameters by name: Triton types (`*bf16`, `i32`) or constants; missing parameters are None.
    """

    function: str
    params: ParamMap
    num_warps: int


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
    variants: Mapping[str, OfflineSignature]
    limits: str
    source: str
    dtypes: tuple[str, ...] = DTYPES
