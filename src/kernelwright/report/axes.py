"""Axis scales and tick placement for the drawings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LogScale:
    """Logarithmic map of [`low`, `high`] to [`start`, `end`] in drawing units."""

    low: float
    high: float
    start: float
    end: float

    def position(self, value: float) -> float:
        """Return the position of a value, clamped to the scale; NaN maps to the start."""
        value = min(max(self.low, value), self.high)
        fraction = math.log10(value / self.low) / math.log10(self.high / self.low)
        return round(self.start + fraction * (self.end - self.start), 2)

    def decades(self) -> list[float]:
        """Powers of ten inside the scale; only every second or third if there are many."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = 1 + (last - first) // 8
        return [10.0**power for power in range(first, last + 1, step)]

    @property
    def per_decade(self) -> float:
        """Drawing units per decade; negative if the axis is reversed."""
        return (self.end - self.start) / math.log10(self.high / self.low)


@dataclass(frozen=True)
class LinearScale:
    """Linear map of [`low`, `high`] to [`start`, `end`]."""

    low: float
    high: float
    start: float
    end: float

    def position(self, value: float) -> float:
        """Return the position of a value, clamped to the scale."""
        value = min(max(self.low, value), self.high)
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 3)


def padded_range(values: list[float], *, decades: float = 0.2) -> tuple[float, float]:
    """Return the range of the positive finite values, widened by `decades` on both sides; (1, 10) if none."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    if not positive:
        return 1.0, 10.0
    margin = 10**decades
    return min(positive) / margin, max(positive) * margin


# ---- ticks

CHAR_WIDTH, MIN_LABEL_GAP = 7.4, 6.0
"""Pixels: the widest digit of a tick label, rounded up, and the minimum gap between two labels."""
MIN_PAGE_WIDTH = 284
"""Width in pixels of a drawing on a 320 px screen, the narrowest phone."""


@dataclass(frozen=True)
class Tick:
    """A tick label; `anchor` (`start`, `mid`, `end`) is the part of it at `position`."""

    position: float
    text: str
    anchor: str


def text_width(text: str) -> float:
    """Upper bound in pixels of the width of a label at 11.5 px."""
    return CHAR_WIDTH * len(text)


def place_ticks(
    labels: Iterable[tuple[float, str]], start: float, end: float, *, pixels: float = 1.0, overhang: float = 0.0
) -> list[Tick]:
    """Place the labels that fit between `start` and `end`; a label that would touch the previous one is dropped.

    Args:
        labels: (position, text) in ascending order.
        pixels: pixels per position unit on the narrowest screen.
        overhang: units by which a centred label may extend beyond the axis.
    """
    ticks: list[Tick] = []
    edge = -math.inf
    for at, text in labels:
        width = text_width(text) / pixels
        anchor = "start" if at - width / 2 < start - overhang else "end" if at + width / 2 > end + overhang else "mid"
        left = at - {"start": 0.0, "mid": width / 2, "end": width}[anchor]
        if left >= edge:
            ticks.append(Tick(at, text, anchor))
            edge = left + width + MIN_LABEL_GAP / pixels
    return ticks
