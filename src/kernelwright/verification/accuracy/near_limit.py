"""Accuracy near its limit: one draw of inputs decides nothing there, so more of that very distribution are drawn.

A draw that is more than `NEAR` times over the limit rejects at once. Else the root mean square over all draws of the
distribution decides, with their majority: an error that is only sometimes over cannot be redrawn until it passes,
since no draw is ever left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kernelwright.core.records import NearLimit, Reason
from kernelwright.measure.clock import wall_s

NEAR = 3.0
"""Within so many times of the limit, above and below, more is drawn."""
LEAST_DRAWS, MOST_DRAWS = 5, 15
CLEAR = 1.5
"""Draws whose root mean square is so many times away from the limit need no more of them."""
MORE_S = 10.0
"""After this long no further one is drawn, once there are `LEAST_DRAWS`."""


class Kind(NamedTuple):
    """Which sets are draws of the same distribution: of the same shapes, with parameters changed alike.

    Attributes:
        number: of one such set among those of its name.
    """

    name: str
    number: int


class Drawn(NamedTuple):
    """What one draw more gave: why it rejects at once, or its largest share of a limit; None where nothing floats or
    the reference cannot take it."""

    reason: Reason | None
    share: float | None


@dataclass
class NearLimits:
    """The draws of one candidate, by kind.

    Args:
        repeatable: how many are drawn follows from what they give alone, and not from how long they take.
    Attributes:
        pending: kinds of which a draw was over the limit, and which nobody has decided yet.
    """

    repeatable: bool = False
    pending: dict[Kind, Reason] = field(default_factory=dict)
    _shares: dict[Kind, list[float]] = field(default_factory=dict)
    _asked: dict[Kind, int] = field(default_factory=dict)
    _decided: set[Kind] = field(default_factory=set)

    def add(self, kind: Kind, share: float) -> None:
        self._shares.setdefault(kind, []).append(share)

    def undecided(self) -> list[Kind]:
        """Kinds that more has to be drawn of when every set was run: the one that came nearest to the limit, where that
        is near. Where one was over the limit, all that came nearly so far: the same error may be over it in them, and
        be under it in what was drawn by chance."""
        worst = {kind: max(shares) for kind, shares in self._shares.items()}
        most = max(worst.values(), default=0.0)
        least = 1 / CLEAR if most > 1 else max(most, 1 / NEAR)
        return [kind for kind, share in worst.items() if share >= least and kind not in self._decided]

    def decide(self, kind: Kind, draw: Callable[[int], Drawn]) -> Reason | None:
        """Draws until enough is known of a kind; why that rejects, or None.

        Args:
            draw: makes one more, by a number from 1 on that it was not given before.
        """
        shares, over = self._shares.setdefault(kind, []), self.pending.pop(kind, None)
        start = wall_s()
        for _ in range(MOST_DRAWS):
            late = not self.repeatable and wall_s() - start > MORE_S
            if len(shares) >= (LEAST_DRAWS if late or is_clear(shares) else MOST_DRAWS):
                break
            self._asked[kind] = self._asked.get(kind, 0) + 1
            drawn = draw(self._asked[kind])
            if drawn.reason:
                return drawn.reason
            over = self.pending.pop(kind, None) or over
            if drawn.share is not None:
                shares.append(drawn.share)
        self._decided.add(kind)
        return over if not shares else _rejection(over, shares, kind)

    @property
    def record(self) -> NearLimit | None:
        """Of the kind that is nearest to its limit, or farthest over it, of those that were decided."""
        found = [kind for kind in self._decided if self._shares[kind]]
        if not found:
            return None
        kind = max(found, key=lambda kind: rms(self._shares[kind]))
        shares = self._shares[kind]
        over = sum(share > 1 for share in shares)
        return NearLimit(distribution=kind.name, sets=len(shares), over=over, rms=rms(shares), worst=max(shares))


def rms(shares: Sequence[float]) -> float:
    return math.sqrt(sum(share * share for share in shares) / len(shares))


def is_over(shares: Sequence[float]) -> bool:
    """Whether all draws together are over the limit: by their root mean square, or half of them or more."""
    return rms(shares) > 1 or 2 * sum(share > 1 for share in shares) >= len(shares)


def is_clear(shares: Sequence[float]) -> bool:
    return len(shares) >= LEAST_DRAWS and not 1 / CLEAR < rms(shares) < CLEAR


def _rejection(over: Reason | None, shares: Sequence[float], kind: Kind) -> Reason | None:
    if not is_over(shares):
        return None
    count = sum(share > 1 for share in shares)
    said = f"over the limit in {count} of {len(shares)} input sets ({kind.name}), {rms(shares):.3g} times it (rms)"
    return Reason(code="inaccurate", detail=f"{over.detail}\n{said}" if over else said)
