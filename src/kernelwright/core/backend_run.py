"""Records of `torch.compile(model, backend="kernelwright")` on the example models."""

from __future__ import annotations

import msgspec

from kernelwright.core.median_times import OURS, TORCH_COMPILE, MedianTimes


class BackendRun(MedianTimes, frozen=True, kw_only=True):
    """One model at one batch size: eager, compiled by inductor, and by our backend.

    Attributes:
        name: `mlp/large`.
        reason: `inaccurate`, `crash` or `timeout`, without times then; empty for a measurement.
        detail: first line of the reason's text.
        first_call_s: seconds of `torch.compile` and the first call, of `torch.compile` (inductor) and `kernelwright`,
            each in a process of its own with empty caches.
    """

    name: str
    reason: str = ""
    detail: str = ""
    first_call_s: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether all forms ran and their results agree."""
        return not self.reason

    @property
    def first_call_ratio(self) -> float | None:
        """Seconds of our first call over inductor's; None if one of them failed."""
        known = self.first_call_s
        return known[OURS] / known[TORCH_COMPILE] if {OURS, TORCH_COMPILE} <= known.keys() else None
