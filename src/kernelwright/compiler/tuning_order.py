"""The order in which the regions of a program are tuned: all of them briefly, then those that take the longest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import fx

from kernelwright.compiler.backends import Backend
from kernelwright.compiler.budget import Budget
from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.compile_pool import CompileTask
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.reference import build_reference
from kernelwright.compiler.regions.contraction import AnyRegion
from kernelwright.compiler.tuning import TuningResult
from kernelwright.core.machine import Machine

MIN_REGION_S, MIN_TUNING_S = 3.0, 1.0
"""Time that a region gets at least, and below which none is tuned."""
MAX_BRIEF_S, MAX_BRIEF_SHARE = 1.0, 0.6
"""Time in which a region of several is tuned at first: a config or two; and what that may take of the time for all."""
NUM_BRIEF_CONFIGS = 2
"""Configs of each region that are compiled before the others."""


class RegionTuner(Protocol):
    """Finds the fastest kernel of a region; see `tuning.Tuner`."""

    backend: Backend
    device: str
    machine: Machine

    @property
    def compiles_ahead(self) -> bool:
        """See `Tuner.compiles_ahead`."""
        ...

    def tune(
        self, region: AnyRegion, reference: fx.GraphModule, inputs: Sequence[torch.Tensor], limit_s: float = ...
    ) -> TuningResult:
        """See `Tuner.tune`."""
        ...

    def compile_ahead(self, region: AnyRegion, count: int | None = None) -> list[CompileTask]:
        """See `Tuner.compile_ahead`."""
        ...

    def is_compiled(self, tasks: Sequence[CompileTask]) -> bool:
        """See `Tuner.is_compiled`."""
        ...

    def stop_compiling(self) -> None:
        """See `Tuner.stop_compiling`."""
        ...

    def compile_for_file(self, kernels: Sequence[RegionKernel], text: str, limit_s: float) -> None:
        """See `Tuner.compile_for_file`."""
        ...

    def notes(self) -> list[str]:
        """Notes for the user on how the tuning ran."""
        ...


@dataclass
class RegionTuning:
    """Tunes the regions of a program.

    Args:
        isolated: a context in which a fault costs only what it names.
        count: how often a region of this name occurs.
        captured_of: the graph of each region by its name.
    Attributes:
        inputs_of: the inputs of each region by its name, until it is tuned fully.
        results: by the name of the region, of those that there was time for.
    """

    tuner: RegionTuner
    budget: Budget
    isolated: Callable[[str], AbstractContextManager[None]]
    count: Callable[[str], int]
    captured_of: Mapping[str, CapturedProgram]
    inputs_of: dict[str, list[torch.Tensor]]
    results: dict[str, TuningResult] = field(default_factory=dict)

    def tune(self, parts: Sequence[PlannedRegion]) -> None:
        """Tune regions as long as there is time."""
        known = [part for part in parts if part.region.name in self.inputs_of]
        share_s = self.budget.remaining_s / max(len(known), 1)
        if self.tuner.compiles_ahead and len(known) > 1 and share_s < 2 * MIN_REGION_S:
            self._tune_briefly(known, min(MAX_BRIEF_S, MAX_BRIEF_SHARE * share_s))
            known = [part for part in known if part.region.name in self.results]
        self._tune_fully(known)

    def _tune_briefly(self, parts: Sequence[PlannedRegion], limit_s: float) -> None:
        left = sorted(parts, key=lambda part: -self._count_bytes(part))
        tasks = {part.region.name: self.tuner.compile_ahead(part.region, 1) for part in parts}
        while left:
            part = next((one for one in left if self.tuner.is_compiled(tasks[one.region.name])), left[0])
            if not self._tune(part, limit_s, f"kernels of {len(left)} of {len(parts)} regions"):
                break
            left.remove(part)

    def _tune_fully(self, parts: Sequence[PlannedRegion]) -> None:
        ordered = sorted(parts, key=lambda part: -self._weight(part))
        for index, part in enumerate(ordered):
            left = len(ordered) - index
            limit_s = max(self.budget.remaining_s / left * 2, MIN_REGION_S)
            what = "more configs" if part.region.name in self.results else "kernels"
            if not self._tune(part, limit_s, f"{what} of {left} of {len(ordered)} regions"):
                break
            self.inputs_of.pop(part.region.name)

    def _tune(self, part: PlannedRegion, limit_s: float, what: str) -> bool:
        """Tune a region; False if there is no time."""
        name = part.region.name
        if not self.budget.allows(MIN_TUNING_S, what):
            return False
        cost = f"{name} is tuned briefly" if name in self.results else f"{name} stays with torch"
        with self.isolated(cost), torch.no_grad():
            reference = build_reference(self.captured_of[name], part)
            self.results[name] = self.tuner.tune(part.region, reference, self.inputs_of[name], limit_s)
        return True

    def _weight(self, part: PlannedRegion) -> float:
        """The time of all occurrences of a region; their bytes if it was not timed."""
        result = self.results.get(part.region.name)
        return self.count(part.region.name) * result.outcome.after_us if result else self._count_bytes(part)

    def _count_bytes(self, part: PlannedRegion) -> int:
        """The bytes that all occurrences of a region move."""
        return self.count(part.region.name) * sum(part.region.bytes_moved)
