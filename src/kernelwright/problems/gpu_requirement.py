"""The GPUs that a source with tensor maps runs on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelwright.toolchain.cuda.includes import INCLUDE_DIR, read_includes

_WGMMA_HEADER = INCLUDE_DIR / "kw" / "ptx" / "wgmma.cuh"


@dataclass(frozen=True)
class GpuRequirement:
    """Compute capabilities from `first` on; only that of `first` if `exact`."""

    text: str
    first: tuple[int, int]
    exact: bool = False

    def is_met(self) -> bool:
        """Whether there is a GPU and the current one suffices."""
        if not torch.cuda.is_available():
            return False
        capability = torch.cuda.get_device_capability()
        return capability == self.first if self.exact else capability >= self.first


TMA = GpuRequirement("TMA: run it on a GPU of compute capability 9.0 or later", (9, 0))
WGMMA = GpuRequirement("wgmma and TMA: run it on a Hopper GPU", (9, 0), exact=True)
"""wgmma exists in sm_90a only."""


def find_gpu_requirement(paths: Iterable[Path]) -> GpuRequirement:
    """What sources with tensor maps need, by the headers that they include: wgmma if any has it, else TMA alone."""
    for path in paths:
        source = path.read_text(encoding="utf-8", errors="replace")
        if _WGMMA_HEADER in read_includes(source, [path.parent, INCLUDE_DIR]):
            return WGMMA
    return TMA
