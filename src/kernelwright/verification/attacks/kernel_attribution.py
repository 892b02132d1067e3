"""Attributes kernels on a device: to torch if one of its operators launched them, to a library if they have a
library's kernel names, else to the candidate."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelwright.measure.trace import DeviceKernel
from kernelwright.problems.problem import Args
from kernelwright.verification.transport.client import CandidateClient

LIBRARY_KERNELS = re.compile(
    r"\bat::|at_cuda_detail|\bcub::|\bthrust::|cublas|cudnn|cufft|cusparse|cusolver|^nccl|^nvjet|_xmma_|\bcutlass_\d\d_"
    r"|\bgemv2[NT]_kernel|\bgemvNSP_kernel|\bgemmSN_|\bgemmk1_kernel|\breduce_1Block_kernel|splitKreduce|\bmagma_"
    r"|\bpytorch_flash::|\bfmha_cutlass|^(ampere|volta|turing)_[sdchb]+gemm"
)
"""Only names that are specific to a library: a kernel called `gemm` may belong to the candidate."""
COPY_KERNELS = re.compile(r"^Mem(cpy|set) ")
"""Copies and fills are neutral."""


@dataclass
class KernelAttribution:
    """Attributes kernel time. Arguments and results as in `CodeAttribution`."""

    client: CandidateClient
    draw_inputs: Callable[[int], Args]
    is_complete: bool = False
    _kernels: list[DeviceKernel] = field(default_factory=list)

    def sample(self) -> None:
        self._kernels, self.is_complete = (
            self.client.call(self.draw_inputs(0), read_outputs=False, trace=True).kernels,
            True,
        )

    @property
    def own_share(self) -> float | None:
        kernel_times_us = [one.time_us for one in self._kernels if not COPY_KERNELS.search(one.name)]
        return 1 - sum(one.time_us for one in self._library_kernels) / sum(kernel_times_us) if kernel_times_us else None

    @property
    def library_names(self) -> str:
        """The longest two kernels of libraries."""
        return ", ".join(list(dict.fromkeys(one.name for one in self._library_kernels))[:2])

    @property
    def _library_kernels(self) -> list[DeviceKernel]:
        kernels = [one for one in self._kernels if _is_library_kernel(one)]
        return sorted(kernels, key=lambda one: one.time_us, reverse=True)


def _is_library_kernel(kernel: DeviceKernel) -> bool:
    if COPY_KERNELS.search(kernel.name):
        return False
    return kernel.operator.startswith("aten::") or bool(LIBRARY_KERNELS.search(kernel.name))
