"""The order in which the regions of a program are tuned: all of them briefly, then those that take the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.reference import build_reference
from kernelwright.compiler.tuning import TuningResult

if TYPE_CHECKING:
    from kernelwright.compiler.session import OptimizationSession

MIN_REGION_S, MIN_TUNING_S = 3.0, 1.0
"""Time that a region gets at least, and below which none is tuned."""
MAX_BRIEF_S, MAX_BRIEF_SHARE = 1.0, 0.6
"""Time in which a region of several is tuned at first: a config or two; and what that may take of the time for all."""
NUM_BRIEF_CONFIGS = 2
"""Configs of each region that are compiled before the others."""


@dataclass
class RegionTuning:
    """Tunes the regions of a session.

    Attributes:
        inputs_of: the inputs of each region by its name, until it is tuned fully.
        results: by the name of the region, of those that there was time for.
    """

    session: OptimizationSession
    inputs_of: dict[str, list[torch.Tensor]]
    results: dict[str, TuningResult] = field(default_factory=dict)

    def tune(self, parts: Sequence[PlannedRegion]) -> None:
        """Tune regions as long as there is time."""
        known = [part for part in parts if part.region.name in self.inputs_of]
        share_s = self.session.budget.remaining_s / max(len(known), 1)
        if self.session.tuner.compiles_ahead and len(known) > 1 and share_s < 2 * MIN_REGION_S:
            self._tune_briefly(known, min(MAX_BRIEF_S, MAX_BRIEF_SHARE * share_s))
            known = [part for part in known if part.region.name in self.results]
        self._tune_fully(known)

    def _tune_briefly(self, parts: Sequence[PlannedRegion], limit_s: float) -> None:
        tuner = self.session.tuner
        left = sorted(parts, key=lambda part: -sum(part.region.bytes_moved) * self._count(part))
        tasks = {part.region.name: tuner.compile_ahead(part.region, 1) for part in parts}
        while left:
            part = next((one for one in left if tuner.is_compiled(tasks[one.region.name])), left[0])
            if not self._tune(part, limit_s, f"kernels of {len(left)} of {len(parts)} regions"):
                break
            left.remove(part)

    def _tune_fully(self, parts: Sequence[PlannedRegion]) -> None:
        ordered = sorted(parts, key=lambda part: -self._weight(part))
        for index, part in enumerate(ordered):
            left = len(ordered) - index
            limit_s = max(self.session.budget.remaining_s / left * 2, MIN_REGION_S)
            what = "more configs" if part.region.name in self.results else "kernels"
            if not self._tune(part, limit_s, f"{what} of {left} of {len(ordered)} regions"):
                break
            self.inputs_of.pop(part.region.name)

    def _tune(self, part: PlannedRegion, limit_s: float, what: str) -> bool:
        """Tune a region; False if there is no time."""
        session, name = self.session, part.region.name
        if not session.budget.allows(MIN_TUNING_S, what):
            return False
        cost = f"{name} is tuned briefly" if name in self.results else f"{name} stays with torch"
        with session.isolated(cost), torch.no_grad():
            reference = build_reference(self._captured_of[name], part)
            self.results[name] = session.tuner.tune(part.region, reference, self.inputs_of[name], limit_s)
        return True

    def _weight(self, part: PlannedRegion) -> float:
        """The time of all occurrences of a region; their bytes if it was not timed."""
        result = self.results.get(part.region.name)
        return self._count(part) * (result.outcome.after_us if result else sum(part.region.bytes_moved))

    def _count(self, part: PlannedRegion) -> int:
        return self.session.count(part.region.name)

    @cached_property
    def _captured_of(self) -> dict[str, CapturedProgram]:
        """The graph of each region by its name."""
        return {part.region.name: plan.captured for plan in self.session.plans for part in plan.regions}
