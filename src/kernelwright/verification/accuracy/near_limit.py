"""Accuracy near its limit: one input set does not decide there, so more sets of the same distribution are drawn.

A set that is more than `NEAR_LIMIT_RATIO` times over the limit rejects at once. Otherwise the root mean square over
all sets of the distribution decides, together with their majority. No set is left out, so an error that is only
sometimes over the limit cannot pass by redrawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kernelwright.core.verdict import NearLimit, Reason
from kernelwright.measure.clock import wall_s

NEAR_LIMIT_RATIO = 3.0
"""Up to this factor above or below the limit, more sets are drawn."""
MIN_DRAWS, MAX_DRAWS = 5, 15
CONCLUSIVE_RATIO = 1.5
"""No more sets are needed if their root mean square is at least this factor away from the limit."""
EXTRA_DRAWS_TIMEOUT_S = 10.0
"""No further set is drawn after this time, once there are `MIN_DRAWS`."""


class InputKind(NamedTuple):
    """Identifies input sets of the same distribution, shapes and parameter changes.

    Attributes:
        set_index: index of one such set among those of its name.
    """

    name: str
    set_index: int


class DrawResult(NamedTuple):
    """Result of one more set: the reason for an immediate rejection, or its largest limit ratio; None without
    floating-point outputs, or where the reference cannot take the set."""

    reason: Reason | None
    limit_ratio: float | None


@dataclass
class NearLimitTracker:
    """Limit ratios of one candidate, by kind of input.

    Args:
        deterministic: the number of sets depends on their results only, not on the time.
    Attributes:
        pending: kinds with a set over the limit that are not decided yet.
    """

    deterministic: bool = False
    pending: dict[InputKind, Reason] = field(default_factory=dict)
    _limit_ratios: dict[InputKind, list[float]] = field(default_factory=dict)
    _draw_counts: dict[InputKind, int] = field(default_factory=dict)
    _decided: set[InputKind] = field(default_factory=set)

    def add(self, kind: InputKind, limit_ratio: float) -> None:
        self._limit_ratios.setdefault(kind, []).append(limit_ratio)

    def undecided_kinds(self) -> list[InputKind]:
        """Kinds that need more sets after all sets were run: the kind nearest to the limit, if it is near. If one was
        over the limit, all kinds that came nearly as close, since by chance the same error may have been under the
        limit there."""
        max_ratios = {kind: max(ratios) for kind, ratios in self._limit_ratios.items()}
        highest = max(max_ratios.values(), default=0.0)
        min_ratio = 1 / CONCLUSIVE_RATIO if highest > 1 else max(highest, 1 / NEAR_LIMIT_RATIO)
        return [kind for kind, ratio in max_ratios.items() if ratio >= min_ratio and kind not in self._decided]

    def decide(self, kind: InputKind, draw_set: Callable[[int], DrawResult]) -> Reason | None:
        """Draw sets of a kind until they decide; the reason to reject, or None.

        Args:
            draw_set: runs one more set, for a number from 1 on that was not used before.
        """
        ratios, reason = self._limit_ratios.setdefault(kind, []), self.pending.pop(kind, None)
        start_s = wall_s()
        for _ in range(MAX_DRAWS):
            is_late = not self.deterministic and wall_s() - start_s > EXTRA_DRAWS_TIMEOUT_S
            if len(ratios) >= (MIN_DRAWS if is_late or is_conclusive(ratios) else MAX_DRAWS):
                break
            self._draw_counts[kind] = self._draw_counts.get(kind, 0) + 1
            result = draw_set(self._draw_counts[kind])
            if result.reason:
                return result.reason
            reason = self.pending.pop(kind, None) or reason
            if result.limit_ratio is not None:
                ratios.append(result.limit_ratio)
        self._decided.add(kind)
        return reason if not ratios else _make_rejection(reason, ratios, kind)

    @property
    def summary(self) -> NearLimit | None:
        """The decided kind that is nearest to its limit, or farthest over it."""
        decided = [kind for kind in self._decided if self._limit_ratios[kind]]
        if not decided:
            return None
        kind = max(decided, key=lambda kind: rms(self._limit_ratios[kind]))
        ratios = self._limit_ratios[kind]
        num_over = sum(ratio > 1 for ratio in ratios)
        return NearLimit(
            distribution=kind.name,
            input_sets=len(ratios),
            sets_over_limit=num_over,
            rms_over_limit=rms(ratios),
            max_over_limit=max(ratios),
        )


def rms(limit_ratios: Sequence[float]) -> float:
    """Root mean square."""
    return math.sqrt(sum(ratio * ratio for ratio in limit_ratios) / len(limit_ratios))


def exceeds_limit(limit_ratios: Sequence[float]) -> bool:
    """Whether all sets together are over the limit: by their root mean square, or at least half of them."""
    return rms(limit_ratios) > 1 or 2 * sum(ratio > 1 for ratio in limit_ratios) >= len(limit_ratios)


def is_conclusive(limit_ratios: Sequence[float]) -> bool:
    """Whether there are enough sets and their root mean square is at least `CONCLUSIVE_RATIO` away from the limit."""
    return len(limit_ratios) >= MIN_DRAWS and not 1 / CONCLUSIVE_RATIO < rms(limit_ratios) < CONCLUSIVE_RATIO


def _make_rejection(first_reason: Reason | None, limit_ratios: Sequence[float], kind: InputKind) -> Reason | None:
    if not exceeds_limit(limit_ratios):
        return None
    count = sum(ratio > 1 for ratio in limit_ratios)
    summary = (
        f"over the limit in {count} of {len(limit_ratios)} input sets ({kind.name}), "
        f"{rms(limit_ratios):.3g} times it (rms)"
    )
    return Reason(code="inaccurate", detail=f"{first_reason.detail}\n{summary}" if first_reason else summary)
