"""A member of the library: what it is called by, what it takes, and with what it compiles where no GPU is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DTYPES = ("float16", "bfloat16", "float32")
ParamMap = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class OfflineSignature:
    """One kernel on the device as it is launched for a usual shape.

    Attributes:
        function: module and name, `kernelwright.kernels.norms.kernel:norm_forward`.
        params: parameters by name: types as Triton writes them (`*bf16`, `i32`), all else constants; those that are not
            here are None.
    """

    function: str
    params: ParamMap
    num_warps: int


@dataclass(frozen=True)
class Kernel:
    """
    Attributes:
        entry_point: module and name of the function that people call.
        variants: samples by name; the first is what the kernel's name alone means.
        limits: what it does not take.
        source: the paper or document that it follows.
    """

    name: str
    summary: str
    entry_point: str
    variants: Mapping[str, OfflineSignature]
    limits: str
    source: str
    dtypes: tuple[str, ...] = DTYPES
