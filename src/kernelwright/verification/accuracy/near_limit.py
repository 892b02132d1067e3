"""Accuracy near its limit: one draw of inputs decides nothing there, so more of that very distribution are drawn.

A draw that is more than `NEAR_LIMIT_RATIO` times over the limit rejects at once. Else the root mean square over all
draws of the distribution decides, with their majority: an error that is only sometimes over cannot be redrawn until it
passes, since no draw is ever left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kernelwright.core.records import NearLimit, Reason
from kernelwright.measure.clock import wall_s

NEAR_LIMIT_RATIO = 3.0
"""Within so many times of the limit, above and below, more is drawn."""
MIN_DRAWS, MAX_DRAWS = 5, 15
CONCLUSIVE_RATIO = 1.5
"""Draws whose root mean square is so many times away from the limit need no more of them."""
EXTRA_DRAWS_TIMEOUT_S = 10.0
"""After this long no further one is drawn, once there are `MIN_DRAWS`."""


class InputKind(NamedTuple):
    """Which sets are draws of the same distribution: of the same shapes, with parameters changed alike.

    Attributes:
        index: of one such set among those of its name.
    """

    name: str
    set_index: int


class DrawResult(NamedTuple):
    """What one draw more gave: why it rejects at once, or its largest share of a limit; None where nothing floats or
    the reference cannot take it."""

    reason: Reason | None
    limit_ratio: float | None


@dataclass
class NearLimitTracker:
    """The draws of one candidate, by kind.

    Args:
        deterministic: how many are drawn follows from what they give alone, and not from how long they take.
    Attributes:
        pending: kinds of which a draw was over the limit, and which nobody has decided yet.
    """

    deterministic: bool = False
    pending: dict[InputKind, Reason] = field(default_factory=dict)
    _limit_ratios: dict[InputKind, list[float]] = field(default_factory=dict)
    _draw_counts: dict[InputKind, int] = field(default_factory=dict)
    _decided: set[InputKind] = field(default_factory=set)

    def add(self, kind: InputKind, limit_ratio: float) -> None:
        self._limit_ratios.setdefault(kind, []).append(limit_ratio)

    def undecided_kinds(self) -> list[InputKind]:
        """Kinds that more has to be drawn of when every set was run: the one that came nearest to the limit, where that
        is near. Where one was over the limit, all that came nearly so far: the same error may be over it in them, and
        be under it in what was drawn by chance."""
        worst = {kind: max(shares) for kind, shares in self._limit_ratios.items()}
        most = max(worst.values(), default=0.0)
        least = 1 / CONCLUSIVE_RATIO if most > 1 else max(most, 1 / NEAR_LIMIT_RATIO)
        return [kind for kind, share in worst.items() if share >= least and kind not in self._decided]

    def decide(self, kind: InputKind, draw_set: Callable[[int], DrawResult]) -> Reason | None:
        """Draws until enough is known of a kind; why that rejects, or None.

        Args:
            draw_set: makes one more, by a number from 1 on that it was not given before.
        """
        shares, over = self._limit_ratios.setdefault(kind, []), self.pending.pop(kind, None)
        start = wall_s()
        for _ in range(MAX_DRAWS):
            late = not self.deterministic and wall_s() - start > EXTRA_DRAWS_TIMEOUT_S
            if len(shares) >= (MIN_DRAWS if late or is_conclusive(shares) else MAX_DRAWS):
                break
            self._draw_counts[kind] = self._draw_counts.get(kind, 0) + 1
            drawn = draw_set(self._draw_counts[kind])
            if drawn.reason:
                return drawn.reason
            over = self.pending.pop(kind, None) or over
            if drawn.limit_ratio is not None:
                shares.append(drawn.limit_ratio)
        self._decided.add(kind)
        return over if not shares else _make_rejection(over, shares, kind)

    @property
    def summary(self) -> NearLimit | None:
        """Of the kind that is nearest to its limit, or farthest over it, of those that were decided."""
        found = [kind for kind in self._decided if self._limit_ratios[kind]]
        if not found:
            return None
        kind = max(found, key=lambda kind: rms(self._limit_ratios[kind]))
        shares = self._limit_ratios[kind]
        over = sum(share > 1 for share in shares)
        return NearLimit(
            distribution=kind.name,
            input_sets=len(shares),
            sets_over_limit=over,
            rms_over_limit=rms(shares),
            max_over_limit=max(shares),
        )


def rms(limit_ratios: Sequence[float]) -> float:
    return math.sqrt(sum(share * share for share in limit_ratios) / len(limit_ratios))


def exceeds_limit(limit_ratios: Sequence[float]) -> bool:
    """Whether all draws together are over the limit: by their root mean square, or half of them or more."""
    return rms(limit_ratios) > 1 or 2 * sum(share > 1 for share in limit_ratios) >= len(limit_ratios)


def is_conclusive(limit_ratios: Sequence[float]) -> bool:
    return len(limit_ratios) >= MIN_DRAWS and not 1 / CONCLUSIVE_RATIO < rms(limit_ratios) < CONCLUSIVE_RATIO


def _make_rejection(first_reason: Reason | None, limit_ratios: Sequence[float], kind: InputKind) -> Reason | None:
    if not exceeds_limit(limit_ratios):
        return None
    count = sum(share > 1 for share in limit_ratios)
    said = (
        f"over the limit in {count} of {len(limit_ratios)} input sets ({kind.name}), "
        f"{rms(limit_ratios):.3g} times it (rms)"
    )
    return Reason(code="inaccurate", detail=f"{first_reason.detail}\n{said}" if first_reason else said)
