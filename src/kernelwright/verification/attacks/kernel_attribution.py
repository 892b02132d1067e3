"""Whose kernels do the work on a device: torch's that an operator of torch's launched, and others' that have the names
that libraries give theirs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelwright.measure.trace import DeviceKernel
from kernelwright.problems.problem import Args
from kernelwright.verification.transport.client import Line

LIBRARY_KERNELS = re.compile(
    r"\bat::|at_cuda_detail|\bcub::|\bthrust::|cublas|cudnn|cufft|cusparse|cusolver|^nccl|^nvjet|_xmma_|\bcutlass_\d\d_"
    r"|\bgemv2[NT]_kernel|\bgemvNSP_kernel|\bgemmSN_|\bgemmk1_kernel|\breduce_1Block_kernel|splitKreduce|\bmagma_"
    r"|\bpytorch_flash::|\bfmha_cutlass|^(ampere|volta|turing)_[sdchb]+gemm"
)
"""As narrow as they are known: a kernel called `gemm` is anybody's."""
NEITHERS_KERNELS = re.compile(r"^Mem(cpy|set) ")
"""Copies and fills are anybody's."""


@dataclass
class DeviceOwnership:
    """Counts the time of kernels by whose they are. Arguments and results as `ownership.Ownership` has them."""

    line: Line
    draw: Callable[[int], Args]
    is_over: bool = False
    _kernels: list[DeviceKernel] = field(default_factory=list)

    def look(self) -> None:
        self._kernels, self.is_over = self.line.call(self.draw(0), look=False, trace=True).kernels, True

    @property
    def share(self) -> float | None:
        someones = [one.time_us for one in self._kernels if not NEITHERS_KERNELS.search(one.name)]
        return 1 - sum(one.time_us for one in self._foreign) / sum(someones) if someones else None

    @property
    def libraries(self) -> str:
        """The longest two kernels of libraries."""
        return ", ".join(list(dict.fromkeys(one.name for one in self._foreign))[:2])

    @property
    def _foreign(self) -> list[DeviceKernel]:
        found = [one for one in self._kernels if _is_foreign(one)]
        return sorted(found, key=lambda one: one.time_us, reverse=True)


def _is_foreign(kernel: DeviceKernel) -> bool:
    if NEITHERS_KERNELS.search(kernel.name):
        return False
    return kernel.operator.startswith("aten::") or bool(LIBRARY_KERNELS.search(kernel.name))
